#include "apps/copus/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <set>
#include <vector>

#include "copus/base/text.h"

namespace copus {
namespace {

// No options of a run.
const std::set<std::string> kNotInFiles{"help", "config", "json", "resume"};
// Commands that have a table of their own in a run's file.
const std::set<std::string> kOwnTables{"compare"};

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (!kNotInFiles.contains(name)) names.push_back(name);
    }
  }
  return names;
}

// A value as the command line would spell it.
Result<std::string> spelled(const toml::node& node, const std::string& where) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
  return make_error(
      "{}: got a table or a date; want a string, a number, true, false or a list of "
      "these",
      where);
}

// Sets one option, unless the command line, or what came before, has.
Result<void> apply(CLI::Option& option, const toml::node& node, const std::string& where) {
  if (option.count() > 0) return {};
  std::vector<std::string> values;
  if (const toml::array* list = node.as_array()) {
    for (const toml::node& item : *list) {
      COPUS_TRY(std::string value, spelled(item, where));
      values.push_back(std::move(value));
    }
  } else {
    COPUS_TRY(std::string value, spelled(node, where));
    values.push_back(std::move(value));
  }
  try {
    for (std::string& value : values) option.add_result(std::move(value));
    option.run_callback();
  } catch (const CLI::Error& error) {
    return make_error("{}: {}", where, error.what());
  }
  return {};
}

Result<void> apply_table(CLI::App& command, const toml::table& table, const std::string& path,
                         const ConfigRules& rules) {
  const std::vector<std::string> names = option_names(command);
  std::set<std::string> seen;  // global_batch and global-batch are one
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    if (kOwnTables.contains(name) && node.is_table()) continue;
    std::replace(name.begin(), name.end(), '_', '-');
    const std::string where = fmt::format("{}: {}", path, key.str());
    if (!seen.insert(name).second) return make_error("{}: got it twice; want it once", where);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      if (rules.others != nullptr) {
        rules.others->push_back(name);
        continue;
      }
      std::vector<std::string> near = nearest_names(name, names);
      if (near.empty()) near = names;
      return make_error("{}: unknown option; want {}", where, join_or(near));
    }
    const auto& except = rules.except;
    if (std::find(except.begin(), except.end(), name) != except.end()) continue;
    COPUS_TRY_VOID(apply(*command.get_option("--" + name), node, where));
  }
  return {};
}

}  // namespace

Result<void> apply_config(CLI::App& command, const std::string& path, const ConfigRules& rules) {
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    if (at.line == 0) return make_error("{}: {}", path, error.description());
    return make_error("{}:{}:{}: {}", path, at.line, at.column, error.description());
  }
  if (const toml::table* own = table[command.get_name()].as_table()) {
    COPUS_TRY_VOID(apply_table(command, *own, fmt::format("{}: {}", path, command.get_name()), {}));
  }
  return apply_table(command, table, path, rules);
}

std::optional<std::string> config_value(const std::string& path, const std::string& key) {
  try {
    return toml::parse_file(path)[key].value<std::string>();
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

}  // namespace copus
