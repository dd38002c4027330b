// The values that an option takes: how they are read, written and shown. A value that is written
// and read again is the same.
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

// How the values of an option are shown.
struct ValueForm {
  std::string placeholder;           // "N"; empty: a flag, which takes none
  std::string range;                 // "1 to 1000"; empty where the placeholder says it all
  std::vector<std::string> choices;  // all that there are, where they are few
  bool is_list = false;
  char separator = 0;  // of a list's elements in one text; 0: a text each
  std::string bare;    // what the option means without a value; empty: it needs one
};

template <typename T>
struct Values {
  // `texts`: as the user gave them, one where form.is_list is false. `field` names the option in
  // errors.
  using Read =
      std::function<Result<T>(const std::vector<std::string>& texts, const std::string& field)>;

  ValueForm form;
  Read read;
  std::function<Json(const T& value)> write;
  Read read_earlier;  // a form that earlier versions wrote into a run's own file; null: none
};

// A JSON value as a command line has it: one text, or one for each element.
std::vector<std::string> spelled(const Json& json);

// What takes one text.
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
// More than nothing, and at most `longest`, where that is given.
Values<Seconds> duration(Seconds longest = Seconds(0), std::string_view longest_text = "");
// Any text that is not empty, shown as `placeholder`: "FILE", "NAME|FILE".
Values<std::string> text(std::string placeholder);
// One of some words.
Values<std::string> word(const std::vector<std::string>& words);

// "90s", "10m", "2h": what parse_duration() reads, in the largest unit that has a whole number.
std::string duration_text(Seconds time);

// Values by the names that to_string() gives them.
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

// One or more of them. `separator`: between those that one text holds; 0: a text holds one.
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

// The same values, or `meaning` for the option alone.
template <typename T>
Values<T> or_bare(Values<T> values, std::string meaning) {
  values.form.bare = std::move(meaning);
  return values;
}

}  // namespace copus
