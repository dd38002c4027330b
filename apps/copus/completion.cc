// copus completion: prints a shell's completion script. The program generates it from the
// definitions of the commands, so that it always matches them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "copus/base/text.h"
#include "copus/cost/framework.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

// Returns the known values of each flag, of all commands together: the choices of its options, and
// the catalog's names.
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

// Returns the words that may follow each command's name: its subcommands and its flags.
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

std::string commands_of(CommandLine& line) {
  return fmt::format("{}", fmt::join(shown_commands(line.app()), " "));
}

// Returns the branches of a shell's `case` statement, which assign the words that may come next.
std::string branches(const std::map<std::string, std::set<std::string>>& words_by_key,
                     std::string_view assignment) {
  std::string text;
  for (const auto& [key, words] : words_by_key) {
    const std::string list = fmt::format("{}", fmt::join(words, " "));
    text += fmt::format("    {}) {} ;;\n", key, fmt::format(fmt::runtime(assignment), list));
  }
  return text;
}

std::string bash_script(CommandLine& line) {
  const std::string commands = commands_of(line);
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
      branches(words_by_command(line), "words=\"{}\""), commands, commands,
      branches(values_by_flag(line), "words=\"{}\""));
}

// The script works with `source`, and also as a file in $fpath that zsh loads when it needs it.
std::string zsh_script(CommandLine& line) {
  return fmt::format(
      "#compdef copus\n"
      "_copus() {{\n"
      "  local -a known\n"
      "  case \"${{words[2]}}\" in\n{}  esac\n"
      "  if (( CURRENT == 2 )); then known=({} --help --version); fi\n"
      "  case \"${{words[CURRENT-1]}}\" in\n{}  esac\n"
      "  compadd -- $known\n"
      "  _files\n"
      "}}\n"
      "if [ \"${{funcstack[1]}}\" = _copus ]; then _copus \"$@\"; else compdef _copus copus; fi\n",
      branches(words_by_command(line), "known=({})"), commands_of(line),
      branches(values_by_flag(line), "known=({})"));
}

// Quotes the text with single quotes for fish.
std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_script(CommandLine& line) {
  std::string script =
      "complete -c copus -n __fish_use_subcommand -l version -d 'show the version'\n";
  for (const CLI::App* each : line.app().get_subcommands([](CLI::App*) { return true; })) {
    if (each->get_group().empty()) continue;
    script += fmt::format("complete -c copus -n __fish_use_subcommand -a {} -d {}\n",
                          each->get_name(), fish_quoted(each->get_description()));
  }
  const auto values = values_by_flag(line);
  for (const auto& [command, words] : words_by_command(line)) {
    const std::string seen = fmt::format("'__fish_seen_subcommand_from {}'", command);
    for (const std::string& word : words) {
      if (!word.starts_with("--")) {
        script += fmt::format("complete -c copus -n {} -a {}\n", seen, word);
        continue;
      }
      script += fmt::format("complete -c copus -n {} -l {}", seen, word.substr(2));
      const auto known = values.find(word);
      if (known != values.end()) {
        script +=
            fmt::format(" -r -a {}", fish_quoted(fmt::format("{}", fmt::join(known->second, " "))));
      }
      script += "\n";
    }
  }
  return script;
}

struct CompletionArgs : OptionGroup {
  Option<std::string> shell{this, "shell", word({"bash", "zsh", "fish"}),
                            "shell to print the script for", "bash"};
};

}  // namespace

void add_completion_command(CommandLine& line) {
  line.add<CompletionArgs>(
      {"completion", "Print the completion script of a shell", "eval \"$(copus completion bash)\""},
      [&line](const CompletionArgs& args) {
        const auto script = *args.shell == "zsh"    ? zsh_script
                            : *args.shell == "fish" ? fish_script
                                                    : bash_script;
        fmt::print("{}", script(line));
        return kOk;
      });
}

}  // namespace copus
