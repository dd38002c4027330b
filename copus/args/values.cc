#include "copus/args/values.h"

#include <cmath>

#include "copus/base/text.h"

namespace copus {

std::vector<std::string> spelled(const Json& json) {
  if (json.is_array()) {
    std::vector<std::string> texts;
    for (const Json& each : json) texts.push_back(spelled(each).front());
    return texts;
  }
  if (json.is_string()) return {json.get<std::string>()};
  if (json.is_number_float()) return {fmt::format("{}", json.get<double>())};
  return {json.dump()};
}

std::string duration_text(Seconds time) {
  for (const auto& [size, unit] :
       {std::pair(86400.0, 'd'), std::pair(3600.0, 'h'), std::pair(60.0, 'm')}) {
    const double count = time.v / size;
    if (count >= 1 && count == std::trunc(count) && count * size == time.v) {
      return fmt::format("{}{}", count, unit);
    }
  }
  return fmt::format("{}s", time.v);
}

Values<bool> flag() {
  return single<bool>(
      "",
      [](const std::string& text, const std::string& field) -> Result<bool> {
        if (text == "true" || text == "false") return text == "true";
        return field_error(field, "got {}; want true or false", shortened(text, kMaxShown));
      },
      [](bool value) { return Json(value); });
}

Values<std::int64_t> integer(std::int64_t low, std::int64_t high) {
  return single<std::int64_t>(
      "N",
      [=](const std::string& text, const std::string& field) {
        return parse_integer(text, field, low, high);
      },
      [](std::int64_t value) { return Json(value); }, fmt::format("{} to {}", low, high));
}

Values<double> number(double low, double high) {
  return single<double>(
      "X",
      [=](const std::string& text, const std::string& field) {
        return parse_number(text, field, low, high);
      },
      [](double value) { return Json(value); }, fmt::format("{} to {}", low, high));
}

Values<Seconds> duration(Seconds longest, std::string_view longest_text) {
  Values<Seconds> values = single<Seconds>(
      "TIME",
      [=, most = std::string(longest_text)](const std::string& text,
                                            const std::string& field) -> Result<Seconds> {
        COPUS_TRY(const double seconds, parse_duration(text, field));
        if (longest.v > 0 && seconds > longest.v) {
          return field_error(field, "got {}; want {}", text, most);
        }
        return Seconds(seconds);
      },
      [](Seconds value) { return Json(duration_text(value)); },
      longest_text.empty() ? "3650d at most" : std::string(longest_text));
  // Earlier versions read a number without a unit as seconds, and wrote it as the user typed it.
  values.read_earlier = [read = values.read](const std::vector<std::string>& texts,
                                             const std::string& field) {
    std::vector<std::string> in_seconds = texts;
    for (std::string& text : in_seconds) text += 's';
    return read(in_seconds, field);
  };
  return values;
}

Values<std::string> text(std::string placeholder) {
  return single<std::string>(
      std::move(placeholder),
      [](const std::string& value, const std::string& field) -> Result<std::string> {
        if (value.empty()) return field_error(field, "got an empty value");
        return value;
      },
      [](const std::string& value) { return Json(value); });
}

Values<std::string> word(const std::vector<std::string>& words) {
  std::string placeholder;
  for (const std::string& each : words) placeholder += (placeholder.empty() ? "" : "|") + each;
  Values<std::string> values = single<std::string>(
      placeholder,
      [words](const std::string& value, const std::string& field) -> Result<std::string> {
        for (const std::string& each : words) {
          if (value == each) return value;
        }
        return field_error(field, "got {}; want {}", shortened(value, kMaxShown), join_or(words));
      },
      [](const std::string& value) { return Json(value); });
  values.form.choices = words;
  return values;
}

}  // namespace copus
