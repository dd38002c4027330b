// Bounded JSON parsing and typed field reads. Every error is one line: "where: field: got VALUE;
// want WHAT".
#include "copus/base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>
#include <utility>

#include "copus/base/text.h"
#include "copus/base/whole_file.h"

namespace copus {
namespace {

std::string clip(std::string text, std::size_t limit) {
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  return text;
}

// A value as errors show it: one short line of ASCII.
std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return value.empty() ? "an empty array" : "an array";
  return clip(value.dump(-1, ' ', true, Json::error_handler_t::replace), kMaxShown);
}

// A key as errors show it: quoted and escaped only if it has spaces or characters to escape.
std::string shown_key(const std::string& key) {
  const std::string quoted = Json(key).dump(-1, ' ', true, Json::error_handler_t::replace);
  const bool plain =
      !key.empty() && quoted.size() == key.size() + 2 && key.find(' ') == std::string::npos;
  return clip(plain ? key : quoted, kMaxShown);
}

// Builds the value in place of the library's builder. That one keeps the last of two equal keys,
// has no limit on depth, and compares each key with all earlier ones, which takes quadratic time on
// a hostile object.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Json root;
  std::string error;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    Open& top = open_.back();
    if (!top.keys.insert(value).second) {
      error =
          fmt::format("{}: got the key twice; want each key once in an object", shown_key(value));
      return false;
    }
    top.key = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& failure) override {
    std::string why = failure.what();
    if (const auto id_end = why.find("] "); id_end != std::string::npos) why.erase(0, id_end + 2);
    // "parse error at line 1, column 5: syntax error while parsing value - unexpected ..."
    if (const auto dash = why.find(" - "); dash != std::string::npos) why.erase(0, dash + 3);
    for (char& c : why) {
      if (c < ' ' || c > '~') c = '?';
    }
    error = fmt::format("byte {}: {}", position, clip(std::move(why), 200));
    return false;
  }

 private:
  struct Open {
    Json* container;
    std::string key = {};                       // of the next value
    std::unordered_set<std::string> keys = {};  // seen in this object
  };

  Json* place(Json value) {
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    Open& top = open_.back();
    if (top.container->is_array()) {
      top.container->push_back(std::move(value));
      return &top.container->back();
    }
    // Appends to the vector that ordered_map derives from, without ordered_map's search for the
    // key: key() has already checked that it is new.
    auto& members = top.container->get_ref<Json::object_t&>();
    return &members.emplace_back(std::move(top.key), std::move(value)).second;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (open_.size() >= static_cast<std::size_t>(kMaxJsonDepth)) {
      error = fmt::format("got more than {} nested levels; want at most that", kMaxJsonDepth);
      return false;
    }
    Json* placed = place(std::move(container));
    open_.push_back(Open{placed});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  // Pointers stay valid: a container does not grow while one of its children is open.
  std::vector<Open> open_;
};

std::string want_integer(std::int64_t low, std::int64_t high) {
  if (high == std::numeric_limits<std::int64_t>::max()) {
    return fmt::format("an integer of {} or more", low);
  }
  if (low == high) return fmt::format("{}", low);
  return fmt::format("an integer from {} to {}", low, high);
}

std::string want_number(double low, double high) {
  const bool open_below = low <= std::numeric_limits<double>::lowest();
  const bool open_above = high >= std::numeric_limits<double>::max();
  if (open_below && open_above) return "a number";
  if (open_above) return fmt::format("a number of {:.6g} or more", low);
  if (open_below) return fmt::format("a number of {:.6g} or less", high);
  return fmt::format("a number from {:.6g} to {:.6g}", low, high);
}

// Sets `out` if the value is exactly an int64. 10000.0 is one too: some programs write integers so.
bool exact_integer(const Json& value, std::int64_t& out) {
  if (value.is_number_unsigned()) {
    const auto n = value.get<std::uint64_t>();
    if (n > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
    out = static_cast<std::int64_t>(n);
    return true;
  }
  if (value.is_number_integer()) {
    out = value.get<std::int64_t>();
    return true;
  }
  if (!value.is_number_float()) return false;
  const auto n = value.get<double>();
  constexpr double kTwoTo63 = 9223372036854775808.0;
  if (n != std::trunc(n) || n < -kTwoTo63 || n >= kTwoTo63) return false;
  out = static_cast<std::int64_t>(n);
  return true;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view where) {
  if (text.size() > kMaxJsonBytes) {
    return make_error("{}: got {} bytes; want at most {}", where, text.size(), kMaxJsonBytes);
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return make_error("{}: got nothing (empty); want a JSON value", where);
  }
  // The library would take a NUL byte as the end of the text and ignore the rest.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    return make_error("{}: byte {}: got a NUL byte; want JSON text", where, nul + 1);
  }
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return make_error("{}: {}", where, builder.error.empty() ? "not JSON" : builder.error);
  }
  return std::move(builder.root);
}

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Result<std::string> read_json_text(const std::string& path) {
  return read_whole_file(path, "JSON", kMaxJsonBytes);
}

Result<Json> read_json_file(const std::string& path) {
  COPUS_TRY(const std::string text, read_json_text(path));
  return parse_json(text, path);
}

FieldReader::FieldReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) fail(make_error("{}: got {}; want an object", where_, shown(object_)));
}

bool FieldReader::has(std::string_view key) const {
  if (!object_.is_object()) return false;
  const auto found = object_.find(std::string(key));
  return found != object_.end() && !found->is_null();
}

const Json* FieldReader::find(std::string_view key) {
  ignore(key);
  if (error_ || !object_.is_object()) return nullptr;
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::int64_t FieldReader::integer(std::string_view key, std::int64_t low, std::int64_t high) {
  if (!has(key)) {
    ignore(key);
    fail(error_in(where_, field_error(key, "missing; want {}", want_integer(low, high))));
  }
  return integer_or(key, low, low, high);
}

std::int64_t FieldReader::integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                                     std::int64_t high) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  std::int64_t n = 0;
  if (exact_integer(*value, n) && n >= low && n <= high) return n;
  fail(error_in(where_,
                field_error(key, "got {}; want {}", shown(*value), want_integer(low, high))));
  return fallback;
}

double FieldReader::number(std::string_view key, double low, double high) {
  if (!has(key)) {
    ignore(key);
    fail(error_in(where_, field_error(key, "missing; want {}", want_number(low, high))));
  }
  return number_or(key, low, low, high);
}

double FieldReader::number_or(std::string_view key, double fallback, double low, double high) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_number()) {
    const auto n = value->get<double>();
    if (n >= low && n <= high) return n;
  }
  fail(
      error_in(where_, field_error(key, "got {}; want {}", shown(*value), want_number(low, high))));
  return fallback;
}

std::string FieldReader::text(std::string_view key) {
  if (!has(key)) {
    ignore(key);
    fail(error_in(where_, field_error(key, "missing; want a string")));
  }
  return text_or(key, "");
}

std::string FieldReader::text_or(std::string_view key, std::string fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  fail(error_in(where_, field_error(key, "got {}; want a string", shown(*value))));
  return fallback;
}

bool FieldReader::boolean_or(std::string_view key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail(error_in(where_, field_error(key, "got {}; want true or false", shown(*value))));
  return fallback;
}

const Json& FieldReader::child(std::string_view key) {
  static const Json kNull;
  const Json* value = find(key);
  return value == nullptr ? kNull : *value;
}

void FieldReader::ignore(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
}

void FieldReader::refuse_unknown() {
  if (!object_.is_object()) return;
  for (const auto& member : object_.items()) {
    const std::string& key = member.key();
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::vector<std::string> nearest = nearest_names(key, known_, 1);
    const std::string want = nearest.empty() ? join_or(known_) : nearest.front();
    fail(error_in(where_, field_error(shown_key(key), "unknown field; want {}",
                                      want.empty() ? "no field" : want)));
    return;
  }
}

void FieldReader::fail(Error error) {
  if (error_) return;  // later errors may follow from the first
  error_ = error.message.empty() ? make_error("{}: not valid", where_) : std::move(error);
}

Result<void> FieldReader::finish() const {
  if (!error_) return {};
  return *error_;
}

}  // namespace copus
