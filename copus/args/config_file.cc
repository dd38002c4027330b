#include "copus/args/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "copus/base/text.h"
#include "copus/base/whole_file.h"

namespace copus {
namespace {

// Commands that have a table of their own in a run's file.
const std::set<std::string> kOwnTables{"compare"};

// A value as the command line would spell it.
Result<std::string> spelled_node(const toml::node& node, const std::string& where) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
  return make_error(
      "{}: got a table or a date; want a string, a number, true, false or a list of "
      "these",
      where);
}

Result<std::vector<std::string>> spelled_nodes(const toml::node& node, const std::string& where) {
  std::vector<std::string> texts;
  if (const toml::array* list = node.as_array()) {
    for (const toml::node& item : *list) {
      COPUS_TRY(std::string text, spelled_node(item, where));
      texts.push_back(std::move(text));
    }
    if (texts.empty()) return make_error("{}: got an empty list; want a value", where);
  } else {
    COPUS_TRY(std::string text, spelled_node(node, where));
    texts.push_back(std::move(text));
  }
  return texts;
}

Error unknown_key(const OptionGroup& args, const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const AnyOption* option : args.options()) {
    if (option->in_file() != InFile::kNo) names.push_back(option->name());
  }
  std::vector<std::string> near = nearest_names(name, names);
  if (near.empty()) near = names;
  return make_error("{}: unknown option; want {}", where, join_or(near));
}

Result<void> read_table(OptionGroup& args, const toml::table& table, const std::string& path,
                        From from, const ConfigRules& rules) {
  std::set<std::string> seen;  // global_batch and global-batch are one
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    if (kOwnTables.contains(name) && node.is_table()) continue;
    std::replace(name.begin(), name.end(), '_', '-');
    const std::string where = fmt::format("{}: {}", path, key.str());
    if (!seen.insert(name).second) return make_error("{}: got it twice; want it once", where);
    AnyOption* option = args.find(name);
    if (option == nullptr || option->in_file() == InFile::kNo) {
      if (rules.others == nullptr) return unknown_key(args, name, where);
      rules.others->push_back(name);
      continue;
    }
    const auto& except = rules.except;
    if (std::find(except.begin(), except.end(), name) != except.end()) continue;
    if (option->from() >= from) continue;
    COPUS_TRY(const std::vector<std::string> texts, spelled_nodes(node, where));
    COPUS_TRY_VOID(option->read(texts, from, where));
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
  // Not toml++'s parse_file(): to it a folder is an empty file.
  COPUS_TRY(const std::string text, read_whole_file(path, "TOML", kMaxConfigBytes));
  COPUS_TRY(toml::table table, parse_toml(text, path));
  if (const toml::table* own = table[rules.own_table].as_table()) {
    COPUS_TRY_VOID(
        read_table(args, *own, fmt::format("{}: {}", path, rules.own_table), from, ConfigRules()));
  }
  return read_table(args, table, path, from, rules);
}

Result<std::map<std::string, std::string>> read_option_texts(const std::string& toml,
                                                             const std::string& where) {
  COPUS_TRY(const toml::table table, parse_toml(toml, where));
  std::map<std::string, std::string> texts;
  for (const auto& [key, node] : table) {
    std::string& spelled = texts[std::string(key.str())];
    if (const auto values = spelled_nodes(node, where)) {
      spelled = fmt::format("{}", fmt::join(*values, ","));
    } else {  // a table, as earlier versions wrote a plan
      std::ostringstream text;
      node.visit([&](const auto& value) { text << value; });
      spelled = text.str();
    }
  }
  return texts;
}

std::string to_toml(const OptionGroup& args) {
  std::string text;
  for (const AnyOption* option : args.options()) {
    // A JSON value is a TOML value.
    if (const std::optional<Json> value = option->written()) {
      text += fmt::format("{} = {}\n", option->name(), value->dump());
    }
  }
  return text;
}

std::optional<std::string> config_value(const std::string& path, const std::string& key) {
  try {
    return toml::parse_file(path)[key].value<std::string>();
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

}  // namespace copus
