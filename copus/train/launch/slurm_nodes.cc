#include "copus/train/launch/slurm_nodes.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "copus/base/text.h"

namespace copus {
namespace {

constexpr std::size_t kMaxHostName = 255;
constexpr std::size_t kMaxDigits = 18;  // fits an int64

bool is_digits(std::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::int64_t to_number(std::string_view digits) {
  std::int64_t n = 0;
  for (const char c : digits) n = n * 10 + (c - '0');
  return n;
}

Error bad_list(std::string_view list, std::string_view why) {
  constexpr std::size_t kShown = 200;
  return field_error("node list", "got \"{}\"; {}", list.substr(0, kShown), why);
}

Error too_many(std::string_view list) {
  return bad_list(list, fmt::format("want at most {} names", kMaxSlurmNodes));
}

// Splits at the commas outside brackets.
Result<std::vector<std::string_view>> split_hosts(std::string_view list) {
  std::vector<std::string_view> hosts;
  bool inside = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    if ((c == '[' && inside) || (c == ']' && !inside)) {
      return bad_list(list, "want brackets in pairs, not nested");
    }
    if (c == '[') inside = true;
    if (c == ']') inside = false;
    if (c != ',' || inside) continue;
    hosts.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  if (inside) return bad_list(list, "want brackets in pairs, not nested");
  hosts.push_back(list.substr(begin));
  return hosts;
}

// "10,20-25,007-009" -> "10", "20", …, "007", "008", "009". All numbers of a range have at least as
// many digits as its first number.
Result<std::vector<std::string>> expand_ranges(std::string_view ranges, std::string_view list) {
  std::vector<std::string> numbers;
  for (const std::string_view range : split(ranges, ',')) {
    const std::size_t dash = range.find('-');
    const std::string_view low = range.substr(0, dash);
    const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
    if (!is_digits(low) || !is_digits(high) || to_number(low) > to_number(high)) {
      return bad_list(list, fmt::format("want numbers or ranges in brackets, not \"{}\"", range));
    }
    const std::int64_t first = to_number(low);
    const std::int64_t count = to_number(high) - first + 1;
    if (count > static_cast<std::int64_t>(kMaxSlurmNodes - numbers.size())) return too_many(list);
    for (std::int64_t i = 0; i < count; ++i) {
      numbers.push_back(fmt::format("{:0{}}", first + i, low.size()));
    }
  }
  return numbers;
}

Result<std::vector<std::string>> expand_host(std::string_view host, std::string_view list) {
  std::vector<std::string> names = {""};
  while (!host.empty()) {
    const std::size_t open = host.find('[');
    const std::string_view plain = host.substr(0, open);
    // Checks the length before the names grow, so that the memory for their text is bounded too.
    if (names.back().size() + plain.size() > kMaxHostName) {
      return bad_list(list, fmt::format("want names of at most {} characters", kMaxHostName));
    }
    for (std::string& name : names) name += plain;
    if (open == std::string_view::npos) break;
    const std::size_t close = host.find(']', open);
    COPUS_TRY(const auto numbers, expand_ranges(host.substr(open + 1, close - open - 1), list));
    if (numbers.size() * names.size() > kMaxSlurmNodes) return too_many(list);
    std::vector<std::string> longer;
    longer.reserve(numbers.size() * names.size());
    for (const std::string& name : names) {
      for (const std::string& number : numbers) longer.push_back(name + number);
    }
    names = std::move(longer);
    host.remove_prefix(close + 1);
  }
  return names;
}

bool is_host_name_part(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '[' || c == ']' || c == ',';
}

}  // namespace

Result<std::vector<std::string>> expand_slurm_nodes(std::string_view list) {
  if (!std::all_of(list.begin(), list.end(), is_host_name_part)) {
    return bad_list(list, "want host names of letters, digits, '-', '_' and '.'");
  }
  COPUS_TRY(const auto hosts, split_hosts(list));
  std::vector<std::string> all;
  for (const std::string_view host : hosts) {
    if (host.empty()) return bad_list(list, "want a host name between commas");
    COPUS_TRY(auto names, expand_host(host, list));
    if (names.size() > kMaxSlurmNodes - all.size()) return too_many(list);
    std::move(names.begin(), names.end(), std::back_inserter(all));
  }
  return all;
}

Result<int> slurm_tasks_on_node(std::string_view list, int node) {
  const auto bad = [&](std::string_view part) {
    return field_error("tasks per node", "got \"{}\" in \"{}\"; want counts such as 8(x4),2", part,
                       list.substr(0, 200));
  };
  std::int64_t nodes_left = node;
  for (const std::string_view part : split(list, ',')) {
    const std::size_t open = part.find("(x");
    const std::string_view tasks = part.substr(0, open);
    std::string_view times = "1";
    if (open != std::string_view::npos) {
      if (!part.ends_with(')')) return bad(part);
      times = part.substr(open + 2, part.size() - open - 3);
    }
    if (!is_digits(tasks) || !is_digits(times) || to_number(tasks) > 1'000'000) return bad(part);
    if (nodes_left < to_number(times)) return static_cast<int>(to_number(tasks));
    nodes_left -= to_number(times);
  }
  return field_error("tasks per node", "got \"{}\"; want an entry for node {}", list.substr(0, 200),
                     node);
}

}  // namespace copus
