// The program copus: parses the command line and runs the command, which has a file of its own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "apps/copus/version.h"
#include "copus/args/option_table.h"
#include "copus/base/program_file.h"
#include "copus/base/standard_streams.h"
#include "copus/base/text.h"
#include "copus/spec/catalog.h"

namespace {

// Returns the command line. Its first word is the path of this program's file.
std::vector<std::string> own_command(int argc, char** argv) {
  std::vector<std::string> command(argv, argv + argc);
  const std::filesystem::path self = copus::own_program();
  if (!self.empty() && !command.empty()) command[0] = self.string();
  return command;
}

// Refuses the first word that is not a subcommand of the words before it. This check precedes the
// parser, whose error would only say that the word was not expected.
copus::Result<void> check_commands(CLI::App& app, int argc, char** argv) {
  CLI::App* at = &app;
  for (int i = 1; i < argc && argv[i][0] != '-'; ++i) {
    CLI::App* next = nullptr;
    for (CLI::App* command : at->get_subcommands([](CLI::App*) { return true; })) {
      if (command->get_name() == argv[i]) next = command;
    }
    const std::vector<std::string> names = copus::shown_commands(*at);
    if (names.empty()) return {};
    if (next == nullptr) {
      return copus::field_error(i == 1 ? "command" : at->get_name(), "got {}; want {}", argv[i],
                                copus::join_or(names));
    }
    at = next;
  }
  return {};
}

// The path of the command that the arguments name ("checkpoint export"), and the number of words
// that name it, including the program's name.
struct NamedCommand {
  std::string path;
  int words = 1;
};
NamedCommand named_command(const copus::CommandLine& line, int argc, char** argv) {
  std::string path;
  int i = 1;
  for (; i < argc && argv[i][0] != '-'; ++i) {
    const std::string longer = path.empty() ? argv[i] : fmt::format("{} {}", path, argv[i]);
    const auto is_longer = [&](const copus::Command& command) {
      return command.path == longer || command.path.starts_with(longer + " ");
    };
    if (std::none_of(line.commands().begin(), line.commands().end(), is_longer)) break;
    path = longer;
  }
  return {path, i};
}

// Returns the error for a flag that the command does not have. It names another command that has
// the flag, or flags of this command that are similar.
copus::Error unknown_flag(const copus::CommandLine& line, const std::string& path,
                          const std::string& flag, const std::vector<std::string>& names) {
  for (const copus::Command& other : line.commands()) {
    const copus::AnyOption* option = other.args->find(flag.substr(2));
    if (option == nullptr || option->is_positional()) continue;
    return copus::field_error(
        flag, "an option of copus {}, not of copus {}; copus {} --help lists its options",
        other.path, path, path);
  }
  std::vector<std::string> near = copus::nearest_names(flag, names);
  // "--batch" for --global-batch.
  for (const std::string& name : names) {
    if (near.empty() && flag.size() > 4 && name.find(flag.substr(2)) != std::string::npos)
      near = {name};
  }
  const std::string wanted = near.empty() ? "" : fmt::format("want {}; ", copus::join_or(near));
  return copus::field_error(flag, "unknown option; {}copus {} --help lists the options", wanted,
                            path);
}

// Refuses the first flag that the command does not have, or that has no value but needs one.
copus::Result<void> check_flags(const copus::CommandLine& line, int argc, char** argv) {
  const auto [path, words] = named_command(line, argc, argv);
  const auto command = std::find_if(line.commands().begin(), line.commands().end(),
                                    [&](const auto& each) { return each.path == path; });
  if (command == line.commands().end()) return {};
  std::vector<std::string> names{"--help"};
  for (const copus::AnyOption* option : command->args->options()) names.push_back(option->flag());
  const auto is_known = [&](std::string_view word) {
    return std::find(names.begin(), names.end(), word) != names.end();
  };
  for (int i = words; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--")) continue;
    const std::string flag(word.substr(0, word.find('=')));
    if (!is_known(flag)) return unknown_flag(line, path, flag, names);
    const copus::AnyOption* option = command->args->find(flag.substr(2));
    const bool last = i + 1 == argc || is_known(argv[i + 1]);
    if (option == nullptr || word != flag || !last) continue;
    const copus::ValueForm& form = option->form();
    if (!form.placeholder.empty() && form.bare.empty()) {
      const std::string range = form.range.empty() ? "" : fmt::format(", {}", form.range);
      return copus::field_error(flag, "got no value; want {}{}", copus::value_text(*option), range);
    }
  }
  return {};
}

// Flushes standard output and returns the exit code. If the answer could not be written, the
// command has failed, unless the reader closed its end (EPIPE) because it has read enough.
int answered(int exit_code) {
  errno = 0;
  const bool arrived = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const int reason = errno;
  if (arrived || reason == EPIPE || exit_code != copus::kOk) return exit_code;
  return copus::report(
      copus::make_error("standard output: cannot be written{}",
                        reason == 0 ? "" : fmt::format(" ({})", std::strerror(reason))));
}

}  // namespace

int main(int argc, char** argv) {
  copus::open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the size limit is a write error, like a full disk
  if (const char* dir = std::getenv("COPUS_CATALOG")) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(dir, ignored)) {
      return copus::report(copus::field_error(
          "COPUS_CATALOG", "got {}; want a folder with gpus.json, models/ or clusters/", dir));
    }
    copus::set_catalog_dir(dir);
  }
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  if (wanted != "train") copus::print_to_whoever_reads();  // train checks for a terminal
  const auto version = copus::version_answer({argv + (argc > 0 ? 1 : 0), argv + argc});
  if (!version) return copus::report(version.error());
  if (*version) {
    std::fputs((*version)->c_str(), stdout);
    return answered(copus::kOk);
  }
  copus::CommandLine line(own_command(argc, argv));
  CLI::App& app = line.app();
  // Only for --help: version_answer() has already handled --version.
  app.add_flag("--version")->description("print version, commit and libraries; --json: as JSON");
  app.footer(
      "Example: copus plan --model llama-3-70b --cluster 64x8xH100-80GB-SXM --global-batch 1024");
  copus::add_plan_command(line);
  copus::add_predict_command(line);
  copus::add_traffic_command(line);
  copus::add_validate_command(line);
  copus::add_data_command(line);
  copus::add_train_command(line);
  copus::add_compare_command(line);
  copus::add_checkpoint_command(line);
  copus::add_completion_command(line);
  copus::add_options_command(line);
  copus::add_man_command(line);
  if (const auto known = check_commands(app, argc, argv); !known) {
    return copus::report(known.error());
  }
  if (const auto known = check_flags(line, argc, argv); !known) {
    return copus::report(known.error());
  }
  try {
    return answered(line.run_command(argc, argv));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help
      std::ostringstream text;
      const int code = app.exit(error, text, text);
      std::fputs(text.str().c_str(), stdout);
      return answered(code);
    }
    const std::string path = named_command(line, argc, argv).path;
    return copus::report(copus::make_error("{} (copus {}--help shows how)", error.what(),
                                           path.empty() ? path : path + " "));
  } catch (const std::bad_alloc&) {
    return copus::report(copus::make_error("out of memory"));
  } catch (const std::exception& error) {  // for example, standard output cannot be written
    return copus::report(copus::make_error("{}", error.what()));
  }
}
