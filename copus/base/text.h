// Small text helpers: strict number parsing, nearest names for error messages, human-readable
// figures, tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/result.h"
#include "copus/base/units.h"

namespace copus {

// Characters of a value or a key that an error shows.
constexpr std::size_t kMaxShown = 60;

// Strict decimal integer in [low, high]; the whole text must be the number. `field` names it in the
// error.
Result<std::int64_t> parse_integer(std::string_view text, std::string_view field, std::int64_t low,
                                   std::int64_t high);

// Strict finite decimal number in [low, high], as "3e-4"; the whole text must be the number.
Result<double> parse_number(std::string_view text, std::string_view field, double low, double high);
// Seconds from "90s", "10m", "1.5h" or "2d": a number above 0 and its unit.
Result<double> parse_duration(std::string_view text, std::string_view field);

std::vector<std::string_view> split(std::string_view text, char separator);

// Up to `count` of `names` nearest to `name` by edit distance (case-insensitive), nearest first.
// Leaves out names that are not similar.
std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> names,
                                       std::size_t count = 3);

// "a, b or c".
std::string join_or(std::span<const std::string> names);

// 70553706496 -> "70.6B"; 124439808 -> "124M".
std::string human_count(double n);
// 41234 -> "41.2k", for lines of many figures.
std::string short_count(double n);
// 0.00123 -> "1.23 ms"; 12.3 -> "12.3 s".
std::string human_seconds(double s);
inline std::string human_seconds(Seconds time) { return human_seconds(time.v); }
// The two largest units: 45s, 2m03s, 1h02m, 3d04h.
std::string short_time(Seconds time);
// 1.3e9 -> "1.21 GiB".
std::string human_bytes(double bytes);
inline std::string human_bytes(Bytes bytes) { return human_bytes(bytes.v); }

// "1 step", "2 steps", "3 batches".
std::string counted(std::int64_t count, std::string_view thing);

// At most `most` bytes, cut between characters; "…" replaces the rest.
std::string shortened(std::string_view text, std::size_t most);

// The text escaped for XML. Control characters become spaces; bytes that are not UTF-8 become '?'.
std::string xml_text(std::string_view text);

// Right-aligned columns (the first and those whose header starts with '<' are left-aligned), two
// spaces apart.
std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows);

// The same, but at most `width` columns of text wide if possible. Until it is, the table's columns
// whose titles are in `droppable` are left out, one after another. `dropped` gets the titles of
// those left out.
std::string format_table(std::vector<std::string> header,
                         std::vector<std::vector<std::string>> rows, std::size_t width,
                         const std::vector<std::string>& droppable,
                         std::vector<std::string>* dropped = nullptr);

}  // namespace copus
