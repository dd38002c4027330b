// Reads JSON with limits on size and depth, and its fields by type; errors name the field. Writes
// JSON as nlohmann::ordered_json, which keeps the order in which fields were added.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/result.h"

namespace copus {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxJsonBytes = std::size_t{4} * 1024 * 1024;
constexpr int kMaxJsonDepth = 64;

// Parses `text`. `where` names the source in errors (a file name). Refuses more than kMaxJsonBytes
// or deeper than kMaxJsonDepth, duplicate keys in one object, and numbers that overflow a double.
Result<Json> parse_json(std::string_view text, std::string_view where);

// The number as JSON. Null if there is no value, or if JSON cannot hold it (infinite, NaN).
Json number_or_null(const std::optional<double>& value);

// Reads and parses a file. The limits are the same; the size is checked before the file is read.
Result<Json> read_json_file(const std::string& path);
// Reads the file's text without parsing it.
Result<std::string> read_json_text(const std::string& path);

// Reads typed fields of one object, collecting the first error. Usage:
//   FieldReader fields(json, "cluster.json");
//   spec.nodes = fields.integer("nodes", 1, 1'000'000);
//   ...
//   if (auto failed = fields.finish(); !failed) return failed.error();
// After the first error every read returns its fallback, so no check is needed in between.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string where);

  bool has(std::string_view key) const;  // present and not null

  // Required fields: absent or null is an error.
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high);
  double number(std::string_view key, double low, double high);
  std::string text(std::string_view key);

  // Optional fields: absent or null gives the fallback.
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                          std::int64_t high);
  double number_or(std::string_view key, double fallback, double low, double high);
  std::string text_or(std::string_view key, std::string fallback);
  bool boolean_or(std::string_view key, bool fallback);

  // The nested value, marked as read; null Json when absent.
  const Json& child(std::string_view key);

  // Marks a key as known and unused, so that refuse_unknown() lets it pass.
  void ignore(std::string_view key);
  // Fails if a key was neither read nor ignored. The error names the nearest known key.
  void refuse_unknown();

  void fail(Error error);
  Result<void> finish() const;

 private:
  const Json* find(std::string_view key);

  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
  std::optional<Error> error_;
};

}  // namespace copus
