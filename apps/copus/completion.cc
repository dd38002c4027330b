// copus completion: a shell's completion script, written from the commands themselves so that it
// cannot fall behind.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "copus/base/text.h"
#include "copus/cost/framework.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

// Values that are known, by flag: of the options that take one of a few, whatever the command.
std::map<std::string, std::set<std::string>> values_by_flag(const CommandLine& line) {
  std::map<std::string, std::set<std::string>> values;
  for (const Command& command : line.commands()) {
    for (const AnyOption* option : command.args->options()) {
      if (option->is_positional() || option->form().choices.empty()) continue;
      values[option->flag()].insert(option->form().choices.begin(), option->form().choices.end());
    }
  }
  const auto add = [&](const char* flag, const std::vector<std::string>& names) {
    values[flag].insert(names.begin(), names.end());
  };
  add("--model", catalog_model_names());
  add("--cluster", catalog_cluster_names());
  add("--framework", framework_names());
  return values;
}

// The words that may follow each command's name: the commands below it, and flags.
std::map<std::string, std::set<std::string>> words_by_command(CommandLine& line) {
  std::map<std::string, std::set<std::string>> words;
  for (const std::string& name : shown_commands(line.app())) words[name].insert("--help");
  for (const Command& command : line.commands()) {
    const std::vector<std::string_view> path = split(command.path, ' ');
    const auto found = words.find(std::string(path[0]));
    if (found == words.end()) continue;
    if (path.size() > 1) found->second.insert(std::string(path[1]));
    for (const AnyOption* option : command.args->options()) {
      if (!option->is_positional()) found->second.insert(option->flag());
    }
  }
  return words;
}

std::string bash_script(CommandLine& line) {
  std::string cases, values;
  for (const auto& [command, words] : words_by_command(line)) {
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command, fmt::join(words, " "));
  }
  for (const auto& [flag, known] : values_by_flag(line)) {
    values += fmt::format("    {}) words=\"{}\" ;;\n", flag, fmt::join(known, " "));
  }
  const std::string commands = fmt::format("{}", fmt::join(shown_commands(line.app()), " "));
  return fmt::format(
      "_copus() {{\n"
      "  local words previous=\"${{COMP_WORDS[COMP_CWORD-1]}}\" "
      "current=\"${{COMP_WORDS[COMP_CWORD]}}\"\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}    *) words=\"{}\" ;;\n  esac\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then words=\"{} --help --version\"; fi\n"
      "  case \"$previous\" in\n{}  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\") $(compgen -f -- \"$current\"))\n"
      "}}\n"
      "complete -F _copus copus\n",
      cases, commands, commands, values);
}

struct CompletionArgs : OptionGroup {
  Option<std::string> shell{this, "shell", word({"bash", "zsh"}),
                            "whose script is printed; zsh's goes through bashcompinit", "bash"};
};

}  // namespace

void add_completion_command(CommandLine& line) {
  line.add<CompletionArgs>(
      {"completion", "Print the completion script of a shell", "eval \"$(copus completion bash)\""},
      [&line](const CompletionArgs& args) {
        if (*args.shell == "zsh") {
          fmt::print("autoload -U +X bashcompinit && bashcompinit\n");
        }
        fmt::print("{}", bash_script(line));
        return kOk;
      });
}

}  // namespace copus
