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

}  // namespace

Result<void> apply_config(CLI::App& command, const std::string& path,
                          const std::vector<std::string>& except) {
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    if (at.line == 0) return make_error("{}: {}", path, error.description());
    return make_error("{}:{}:{}: {}", path, at.line, at.column, error.description());
  }
  const std::vector<std::string> names = option_names(command);
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    std::replace(name.begin(), name.end(), '_', '-');
    const std::string where = fmt::format("{}: {}", path, key.str());
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      std::vector<std::string> near = nearest_names(name, names);
      if (near.empty()) near = names;
      return make_error("{}: unknown option; want {}", where, join_or(near));
    }
    CLI::Option* option = command.get_option("--" + name);
    const bool left_alone = std::find(except.begin(), except.end(), name) != except.end();
    if (option->count() > 0 || left_alone) continue;
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
      for (std::string& value : values) option->add_result(std::move(value));
      option->run_callback();
    } catch (const CLI::Error& error) {
      return make_error("{}: {}", where, error.what());
    }
  }
  return {};
}

}  // namespace copus
