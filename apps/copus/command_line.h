// The program's commands. Each has a name, options and a function. The parser, --help, the
// completion script and the tables of the documents use these definitions.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "copus/args/option.h"

namespace copus {

struct CommandText {
  std::string name;
  std::string what;     // one line
  std::string example;  // "copus plan --model …"; one line for each command
};

struct Command {
  std::string path;  // "checkpoint export"
  std::shared_ptr<const OptionGroup> args;
};

class CommandLine {
 public:
  // `command`: this program's path, and its arguments.
  explicit CommandLine(std::vector<std::string> command);

  // Adds a command. `run(args)` gets the parsed arguments, and returns the exit code or an error.
  template <typename Args, typename Run>
  CLI::App& add(const CommandText& text, Run run, CLI::App* parent = nullptr) {
    auto args = std::make_shared<Args>();
    CLI::App& command = add_app(text, args, parent);
    command.callback([this, &command, args, run] {
      const Result<void> read = read_options(command, *args);
      finish(read ? Result<int>(run(*args)) : Result<int>(read.error()));
    });
    return command;
  }
  // Adds a command that only has subcommands.
  CLI::App& add_parent(const CommandText& text);

  // Parses the command line and runs its command; returns the exit code. Throws CLI::ParseError.
  int run_command(int argc, char** argv);

  CLI::App& app() { return app_; }
  const std::vector<std::string>& command() const { return command_; }
  const std::vector<Command>& commands() const { return commands_; }

 private:
  CLI::App& add_app(const CommandText& text, const std::shared_ptr<OptionGroup>& args,
                    CLI::App* parent);
  static Result<void> read_options(const CLI::App& command, OptionGroup& args);
  void finish(const Result<int>& code);

  CLI::App app_;
  std::vector<std::string> command_;
  std::vector<Command> commands_;
  int exit_code_ = 0;
};

// The names of all commands that --help lists.
std::vector<std::string> shown_commands(const CLI::App& app);

}  // namespace copus
