// The kinds of values that an option takes: how each kind is read, written and shown. A value that
// is written and read again stays the same.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/base/units.h"

namespace copus {

// How --help and documents show the values of an option.
struct ValueForm {
  std::string placeholder;           // "N"; empty: the option is a flag without a value
  std::string range;                 // "1 to 1000"; empty: the placeholder says enough
  std::vector<std::string> choices;  // all possible values if they are few words, else empty
  bool is_list = false;
  char separator = 0;  // between list elements in one text; 0: one text holds one element
  std::string bare;    // what the option means without a value; empty: it needs a value
};

template <typename T>
struct Values {
  // `texts` is what the user gave: one text if form.is_list is false. `field` names the option in
  // error messages.
  using Read =
      std::function<Result<T>(const std::vector<std::string>& texts, const std::string& field)>;

  ValueForm form;
  Read read;
  std::function<Json(const T& value)> write;
  // Reads the form that earlier versions of Copus wrote into a run's config.toml. Null: the form
  // has not changed.
  Read read_earlier;
};

// Returns a JSON value as a command line spells it: one text, or one text for each list element.
std::vector<std::string> spelled(const Json& json);

// Makes values that are read from exactly one text.
template <typename T, typename Read, typename Write>
Values<T> single(std::string placeholder, Read read, Write write, std::string range = "") {
  Values<T> values;
  values.form.placeholder = std::move(placeholder);
  values.form.range = std::move(range);
  values.read = [read](const std::vector<std::string>& texts,
                       const std::string& field) -> Result<T> {
    if (texts.size() != 1) return field_error(field, "got {} values; want one", texts.size());
    return read(texts.front(), field);
  };
  values.write = write;
  return values;
}

Values<bool> flag();
Values<std::int64_t> integer(std::int64_t low, std::int64_t high);
Values<double> number(double low, double high);
// A positive time. If `longest` is above 0, it is the upper limit, and `longest_text` describes it.
Values<Seconds> duration(Seconds longest = Seconds(0), std::string_view longest_text = "");
// Any text that is not empty, shown as `placeholder`, such as "FILE" or "NAME|FILE".
Values<std::string> text(std::string placeholder);
// One of the given words.
Values<std::string> word(const std::vector<std::string>& words);

// Returns "90s", "10m" or "2h": text that parse_duration() reads, in the largest unit in which the
// time is a whole number.
std::string duration_text(Seconds time);

// One of `choices`, each spelled as to_string() names it.
template <typename T, std::size_t kCount>
Values<T> one_of(const std::array<T, kCount>& choices) {
  std::vector<std::string> names;
  for (const T& each : choices) names.emplace_back(to_string(each));
  const Values<std::string> words = word(names);
  Values<T> values;
  values.form = words.form;
  values.read = [words, choices](const std::vector<std::string>& texts,
                                 const std::string& field) -> Result<T> {
    COPUS_TRY(const std::string name, words.read(texts, field));
    std::size_t i = 0;
    while (name != to_string(choices[i])) ++i;
    return choices[i];
  };
  values.write = [](const T& value) { return Json(std::string(to_string(value))); };
  return values;
}

// A list of one or more elements. `separator` stands between the elements that one text holds; 0:
// one text holds one element.
template <typename T>
Values<std::vector<T>> list_of(const Values<T>& element, char separator = 0) {
  Values<std::vector<T>> values;
  values.form = element.form;
  values.form.is_list = true;
  values.form.separator = separator;
  values.read = [element](const std::vector<std::string>& texts,
                          const std::string& field) -> Result<std::vector<T>> {
    std::vector<T> list;
    for (const std::string& each : texts) {
      COPUS_TRY(T value, element.read({each}, field));
      list.push_back(std::move(value));
    }
    return list;
  };
  values.write = [element](const std::vector<T>& list) {
    Json json = Json::array();
    for (const T& each : list) json.push_back(element.write(each));
    return json;
  };
  return values;
}

// The same values, but the option may also stand without a value, which means `meaning`.
template <typename T>
Values<T> or_bare(Values<T> values, std::string meaning) {
  values.form.bare = std::move(meaning);
  return values;
}

}  // namespace copus
