// copus completion: a shell's completion script, written from the commands themselves so that it
// cannot fall behind.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "apps/copus/common.h"
#include "copus/cost/framework.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

// The flags, and the names and flags of the commands below.
std::string words_of(const CLI::App& command) {
  std::string words;
  const auto add = [&](const std::string& word) { words += (words.empty() ? "" : " ") + word; };
  for (const CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; })) {
    add(below->get_name());
    if (const std::string inner = words_of(*below); !inner.empty()) add(inner);
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) add("--" + name);
  }
  return words;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string bash_script(const CLI::App& app) {
  std::string commands, cases;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands += (commands.empty() ? "" : " ") + command->get_name();
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command->get_name(), words_of(*command));
  }
  return fmt::format(
      "_copus() {{\n"
      "  local words previous=\"${{COMP_WORDS[COMP_CWORD-1]}}\" "
      "current=\"${{COMP_WORDS[COMP_CWORD]}}\"\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n{}    *) words=\"{}\" ;;\n  esac\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then words=\"{} --help --version\"; fi\n"
      "  case \"$previous\" in\n"
      "    --model) words=\"{}\" ;;\n"
      "    --cluster) words=\"{}\" ;;\n"
      "    --precision) words=\"bf16 fp16 fp8 fp32\" ;;\n"
      "    --framework) words=\"{}\" ;;\n"
      "    --emit) words=\"megatron\" ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\") $(compgen -f -- \"$current\"))\n"
      "}}\n"
      "complete -F _copus copus\n",
      cases, commands, commands, join(catalog_model_names()), join(catalog_cluster_names()),
      join(framework_names()));
}

}  // namespace

void add_completion_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("completion", "Print the completion script of a shell");
  auto shell = std::make_shared<std::string>("bash");
  command->add_option("shell", *shell, "bash, or zsh (through bashcompinit)");
  command->footer("Example: eval \"$(copus completion bash)\"");
  command->callback([shell, &app, &exit_code] {
    if (*shell == "bash") {
      fmt::print("{}", bash_script(app));
    } else if (*shell == "zsh") {
      fmt::print("autoload -U +X bashcompinit && bashcompinit\n{}", bash_script(app));
    } else {
      exit_code = report(make_error("completion: got {}; want bash or zsh", *shell));
    }
  });
}

}  // namespace copus
