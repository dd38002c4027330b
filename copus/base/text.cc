// Strict number parsing, nearest names, human-readable figures and tables.
#include "copus/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace copus {
namespace {

// A user's text as errors show it: one short line.
std::string quoted(std::string_view text) {
  std::string shown(text.substr(0, kMaxShown));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return '"' + shown + (text.size() > kMaxShown ? "...\"" : "\"");
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Levenshtein's distance: insertions, deletions and substitutions cost 1 each.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// Three significant digits of a number in [0, 10000).
std::string three_digits(double x) {
  if (x < 9.995) return fmt::format("{:.2f}", x);
  if (x < 99.95) return fmt::format("{:.1f}", x);
  return fmt::format("{:.0f}", x);
}

struct Unit {
  double size;
  std::string_view suffix;
};

// `x` in the largest unit in which it rounds to 1 or more. `units` run from small to large.
std::string scaled(double x, std::span<const Unit> units) {
  if (!std::isfinite(x)) return fmt::format("{}", x);
  const double magnitude = std::abs(x);
  Unit unit = units.front();
  for (const Unit& next : units) {
    if (magnitude >= next.size * 0.9995) unit = next;
  }
  const double value = magnitude / unit.size;
  const std::string digits = value < 1e4 ? three_digits(value) : fmt::format("{:.3g}", value);
  return fmt::format("{}{}{}", x < 0 ? "-" : "", digits, unit.suffix);
}

// Whole numbers below a thousand stay whole.
std::string scaled_count(double n, std::span<const Unit> units) {
  if (std::abs(n) < 1000 && n == std::trunc(n)) return fmt::format("{:.0f}", n);
  return scaled(n, units);
}

// Columns on a terminal, at one per code point: UTF-8's continuation bytes do not count.
std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// Bytes of the UTF-8 character at the start of `text`; 0 if there is no valid one.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xC2 && first < 0xE0 ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  if (length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

Result<std::int64_t> parse_integer(std::string_view text, std::string_view field, std::int64_t low,
                                   std::int64_t high) {
  std::int64_t n = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (status == std::errc() && end == text.data() + text.size() && n >= low && n <= high) return n;
  return field_error(field, "got {}; want an integer from {} to {}", quoted(text), low, high);
}

Result<double> parse_number(std::string_view text, std::string_view field, double low,
                            double high) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value < low || value > high) {
    return field_error(field, "got {}; want a number from {} to {}", text, low, high);
  }
  return value;
}

Result<double> parse_duration(std::string_view text, std::string_view field) {
  static constexpr std::array<Unit, 4> kUnits = {{{1, "s"}, {60, "m"}, {3600, "h"}, {86400, "d"}}};
  constexpr double kLongest = 3650 * 86400.0;
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.suffix)) continue;
    const std::string_view number = text.substr(0, text.size() - 1);
    const Result<double> value = parse_number(number, field, 0, kLongest / unit.size);
    if (value && *value > 0) return *value * unit.size;
  }
  const Result<double> bare = parse_number(text, field, 0, kLongest);
  if (bare && *bare > 0) {
    return field_error(field, "got {0} without a unit; want {0}s, {0}m, {0}h or {0}d", text);
  }
  return field_error(field, "got {}; want a duration such as 90s, 10m, 1.5h or 2d", text);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> names,
                                       std::size_t count) {
  constexpr std::size_t kLongestName =
      256;  // longer text is no typing mistake, and slow to compare
  if (name.empty() || name.size() > kLongestName) return {};

  struct Candidate {
    std::size_t score;
    std::size_t distance;
    const std::string* name;
  };
  std::vector<Candidate> candidates;
  const std::string wanted = lower(name);
  for (const std::string& each : names) {
    if (each.empty() || each.size() > kLongestName) continue;
    const std::string other = lower(each);
    const std::size_t distance = edit_distance(wanted, other);
    const std::string& shorter = wanted.size() < other.size() ? wanted : other;
    const std::string& longer = wanted.size() < other.size() ? other : wanted;
    // Many edits lie between "llama-3-70" and "llama-3-70b-instruct", but the second is clearly
    // meant. So a prefix counts as one edit, and any other part as two.
    std::size_t score = distance;
    if (shorter.size() >= 2 && longer.starts_with(shorter)) {
      score = std::min<std::size_t>(distance, 1);
    } else if (shorter.size() >= 3 && longer.find(shorter) != std::string::npos) {
      score = std::min<std::size_t>(distance, 2);
    } else if (distance > std::max<std::size_t>(1, longer.size() * 2 / 5) ||
               distance >= longer.size()) {
      continue;
    }
    candidates.push_back({score, distance, &each});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return a.score != b.score ? a.score < b.score : a.distance < b.distance;
                   });
  if (candidates.size() > count) candidates.resize(count);
  std::vector<std::string> nearest;
  nearest.reserve(candidates.size());
  for (const Candidate& candidate : candidates) nearest.push_back(*candidate.name);
  return nearest;
}

std::string join_or(std::span<const std::string> names) {
  std::string joined;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) joined += i + 1 == names.size() ? " or " : ", ";
    joined += names[i];
  }
  return joined;
}

std::string human_count(double n) {
  static constexpr std::array<Unit, 5> kUnits = {
      {{1, ""}, {1e3, "K"}, {1e6, "M"}, {1e9, "B"}, {1e12, "T"}}};
  return scaled_count(n, kUnits);
}

std::string short_count(double n) {
  static constexpr std::array<Unit, 5> kUnits = {
      {{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}}};
  return scaled_count(n, kUnits);
}

std::string human_seconds(double s) {
  static constexpr std::array<Unit, 4> kShort = {
      {{1e-9, " ns"}, {1e-6, " us"}, {1e-3, " ms"}, {1, " s"}}};
  // A larger unit begins at two of it: "90.0 s" says more than "1.50 min".
  static constexpr std::array<Unit, 1> kMinutes = {{{60, " min"}}};
  static constexpr std::array<Unit, 1> kHours = {{{3600, " h"}}};
  static constexpr std::array<Unit, 1> kDays = {{{86400, " days"}}};
  if (s == 0) return "0 s";
  const double magnitude = std::abs(s);
  if (!std::isfinite(s) || magnitude < 120) return scaled(s, kShort);
  if (magnitude < 2 * 3600) return scaled(s, kMinutes);
  if (magnitude < 2 * 86400) return scaled(s, kHours);
  return scaled(s, kDays);
}

std::string short_time(Seconds time) {
  const auto s = std::llround(std::min(time.v, 1e12));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
}

std::string human_bytes(double bytes) {
  static constexpr std::array<Unit, 6> kUnits = {{{1, " B"},
                                                  {1024.0, " KiB"},
                                                  {1048576.0, " MiB"},
                                                  {1073741824.0, " GiB"},
                                                  {1099511627776.0, " TiB"},
                                                  {1125899906842624.0, " PiB"}}};
  if (std::abs(bytes) < 1000 && bytes == std::trunc(bytes)) return fmt::format("{:.0f} B", bytes);
  return scaled(bytes, kUnits);
}

std::string counted(std::int64_t count, std::string_view thing) {
  const bool hisses = thing.ends_with("ch") || thing.ends_with("s") || thing.ends_with("x");
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : hisses ? "es" : "s");
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "…";
}

std::string xml_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = character_bytes(text.substr(i));
    const char c = text[i];
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += ' ';  // not allowed in XML, escaped or not
    } else if (length == 0) {
      out += '?';
    } else {
      out += text.substr(i, length);
    }
    i += std::max<std::size_t>(1, length);
  }
  return out;
}

std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows) {
  std::size_t columns = header.size();
  for (const auto& row : rows) columns = std::max(columns, row.size());

  std::vector<bool> left(columns, false);
  if (columns > 0) left[0] = true;
  std::vector<std::string> titles = header;
  titles.resize(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    if (!titles[c].starts_with('<')) continue;
    left[c] = true;
    titles[c].erase(0, 1);
  }

  std::vector<std::size_t> width(columns);
  for (std::size_t c = 0; c < columns; ++c) width[c] = columns_of(titles[c]);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], columns_of(row[c]));
  }

  std::string table;
  const auto add_line = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string cell = c < cells.size() ? cells[c] : std::string();
      const std::string padding(width[c] - columns_of(cell), ' ');
      if (c > 0) line += "  ";
      line += left[c] ? cell + padding : padding + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    table += line + '\n';
  };
  add_line(titles);
  for (const auto& row : rows) add_line(row);
  return table;
}

std::string format_table(std::vector<std::string> header,
                         std::vector<std::vector<std::string>> rows, std::size_t width,
                         const std::vector<std::string>& droppable,
                         std::vector<std::string>* dropped) {
  std::string table = format_table(header, rows);
  const auto too_wide = [&] {
    const std::vector<std::string_view> lines = split(table, '\n');
    return std::any_of(lines.begin(), lines.end(),
                       [&](std::string_view line) { return columns_of(line) > width; });
  };
  for (const std::string& title : droppable) {
    if (!too_wide()) break;
    const auto found = std::find(header.begin(), header.end(), title);
    COPUS_CHECK(found != header.end());
    const std::size_t column = static_cast<std::size_t>(found - header.begin());
    header.erase(found);
    for (std::vector<std::string>& row : rows) {
      if (column < row.size()) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
    }
    if (dropped != nullptr) dropped->push_back(title);
    table = format_table(header, rows);
  }
  return table;
}

}  // namespace copus
