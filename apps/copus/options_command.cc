// copus options: prints the options of a command as a table, which docs/commands.md contains.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "copus/args/option_table.h"
#include "copus/base/text.h"

namespace copus {
namespace {

struct OptionsArgs : OptionGroup {
  Option<std::string> command{this, "command", text("COMMAND"), "command, as \"checkpoint export\"",
                              Required()};
  Option<std::string> title{this, "title", text("TITLE"), "title of the options in --help", ""};
};

Result<int> print_table(const CommandLine& line, const OptionsArgs& args) {
  std::vector<std::string> names;
  for (const Command& command : line.commands()) {
    names.push_back(command.path);
    if (command.path != *args.command) continue;
    const auto& options = command.args->options();
    if (std::none_of(options.begin(), options.end(),
                     [&](const AnyOption* option) { return option->title() == *args.title; })) {
      return field_error("title", "got \"{}\"; want one of copus {} --help", *args.title,
                         command.path);
    }
    fmt::print("{}", markdown_table(*command.args, *args.title));
    return kOk;
  }
  return field_error("command", "got {}; want {}", *args.command, join_or(names));
}

}  // namespace

void add_options_command(CommandLine& line) {
  line.add<OptionsArgs>({"options", "Print a command's options as a table", "copus options plan"},
                        [&line](const OptionsArgs& args) { return print_table(line, args); })
      .group("");
}

}  // namespace copus
