#include "copus/args/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <set>

#include "copus/base/text.h"
#include "copus/base/whole_file.h"

namespace copus {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20U;

// Commands that may have their own table in a TOML file, named after the command.
const std::set<std::string> kOwnTables{"compare"};

// Returns a value as the command line would spell it.
Result<std::string> spelled_node(const toml::node& node, const std::string& key) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
  return field_error(
      key, "got a table or a date; want a string, a number, true, false or a list of these");
}

Result<std::vector<std::string>> spelled_nodes(const toml::node& node, const std::string& key) {
  std::vector<std::string> texts;
  if (const toml::array* list = node.as_array()) {
    for (const toml::node& item : *list) {
      COPUS_TRY(std::string text, spelled_node(item, key));
      texts.push_back(std::move(text));
    }
    if (texts.empty()) return field_error(key, "got an empty list; want a value");
  } else {
    COPUS_TRY(std::string text, spelled_node(node, key));
    texts.push_back(std::move(text));
  }
  return texts;
}

Error unknown_key(const OptionGroup& args, const std::string& name, const std::string& key) {
  std::vector<std::string> names;
  for (const AnyOption* option : args.options()) {
    if (option->in_file() != InFile::kNo) names.push_back(option->name());
  }
  std::vector<std::string> near = nearest_names(name, names);
  if (near.empty()) near = names;
  return field_error(key, "unknown option; want {}", join_or(near));
}

Result<void> read_node(AnyOption& option, const toml::node& node, const std::string& key,
                       From from) {
  COPUS_TRY(const std::vector<std::string> texts, spelled_nodes(node, key));
  return option.read(texts, from, key);
}

Result<void> read_table(OptionGroup& args, const toml::table& table, const std::string& path,
                        From from, const ConfigRules& rules) {
  std::set<std::string> seen;  // with '-' for '_': global_batch and global-batch are the same key
  for (const auto& [toml_key, node] : table) {
    const std::string key(toml_key.str());
    std::string name = key;
    if (kOwnTables.contains(name) && node.is_table()) continue;
    std::replace(name.begin(), name.end(), '_', '-');
    if (!seen.insert(name).second) {
      return error_in(path, field_error(key, "got it twice; want it once"));
    }
    AnyOption* option = args.find(name);
    if (option == nullptr || option->in_file() == InFile::kNo) {
      if (rules.others == nullptr) return error_in(path, unknown_key(args, name, key));
      rules.others->push_back(name);
      continue;
    }
    const auto& except = rules.except;
    if (std::find(except.begin(), except.end(), name) != except.end()) continue;
    if (option->from() >= from) continue;
    if (const auto read = read_node(*option, node, key, from); !read) {
      return error_in(path, read.error());
    }
  }
  return {};
}

Result<toml::table> parse_toml(const std::string& text, const std::string& path) {
  try {
    return toml::table(toml::parse(text, path));
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    return make_error("{}:{}:{}: {}", path, at.line, at.column, error.description());
  }
}

}  // namespace

Result<void> read_config(OptionGroup& args, const std::string& path, From from,
                         const ConfigRules& rules) {
  // toml++'s own parse_file() would take a folder for an empty file.
  COPUS_TRY(const std::string text, read_whole_file(path, "TOML", kMaxConfigBytes));
  COPUS_TRY(toml::table table, parse_toml(text, path));
  if (const toml::table* own = table[rules.own_table].as_table()) {
    COPUS_TRY_VOID(
        read_table(args, *own, fmt::format("{}: {}", path, rules.own_table), from, ConfigRules()));
  }
  return read_table(args, table, path, from, rules);
}

std::string to_toml(const OptionGroup& args) {
  std::string text;
  for (const AnyOption* option : args.options()) {
    // Every JSON value that an option writes is also valid TOML.
    if (const std::optional<Json> value = option->written()) {
      text += fmt::format("{} = {}\n", option->name(), value->dump());
    }
  }
  return text;
}

}  // namespace copus
