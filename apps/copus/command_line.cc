#include "apps/copus/command_line.h"

#include "apps/copus/common.h"
#include "copus/args/option_table.h"
#include "copus/base/text.h"

namespace copus {
namespace {

constexpr std::size_t kHelpColumn = 30;
constexpr std::size_t kHelpWidth = 100 - kHelpColumn;

// An empty value usually comes from an unset shell variable. It does not mean the default.
const CLI::Validator& not_empty() {
  static const CLI::Validator validator(
      [](const std::string& text) { return text.empty() ? "got an empty value" : std::string(); },
      "");
  return validator;
}

void add_option(CLI::App& command, const AnyOption& option) {
  const ValueForm& form = option.form();
  const std::string help = help_text(option, kHelpWidth);
  if (form.placeholder.empty()) {
    command.add_flag(option.flag(), help)
        ->group(option.title().empty() ? "Options" : option.title());
    return;
  }
  CLI::Option* added = command.add_option(option.flag(), help);
  added->option_text(value_text(option) + (option.required() ? " REQUIRED" : ""))
      ->required(option.required())
      ->check(not_empty());
  if (!option.title().empty()) added->group(option.title());
  if (form.is_list) added->expected(CLI::detail::expected_max_vector_size);
  if (form.separator != 0) added->delimiter(form.separator);
  if (!form.bare.empty()) added->expected(0, 1)->default_str(form.bare);
}

std::string footer_of(const CommandText& text) {
  return text.example.empty() ? std::string() : "Example: " + text.example;
}

}  // namespace

CommandLine::CommandLine(std::vector<std::string> command)
    : app_("Copus lays the training of an LLM out over a cluster."), command_(std::move(command)) {
  app_.get_formatter()->column_width(kHelpColumn);
  app_.require_subcommand(1);
}

CLI::App& CommandLine::add_app(const CommandText& text, const std::shared_ptr<OptionGroup>& args,
                               CLI::App* parent) {
  CLI::App& command = *(parent == nullptr ? app_ : *parent).add_subcommand(text.name, text.what);
  command.footer(footer_of(text));
  for (const AnyOption* option : args->options()) add_option(command, *option);
  commands_.push_back({parent == nullptr ? text.name : parent->get_name() + " " + text.name, args});
  return command;
}

CLI::App& CommandLine::add_parent(const CommandText& text) {
  CLI::App& command = *app_.add_subcommand(text.name, text.what);
  command.footer(footer_of(text));
  command.require_subcommand(0, 1);
  command.callback([this, &command] {
    if (!command.get_subcommands().empty()) return;
    finish(field_error(command.get_name(), "got nothing to do; want {}",
                       join_or(shown_commands(command))));
  });
  return command;
}

Result<void> CommandLine::read_options(const CLI::App& command, OptionGroup& args) {
  for (AnyOption* option : args.options()) {
    const CLI::Option* found = command.get_option(option->flag());
    if (found->count() == 0) continue;
    COPUS_TRY_VOID(option->read(found->results(), From::kCommandLine, option->flag()));
  }
  return {};
}

void CommandLine::finish(const Result<int>& code) {
  exit_code_ = code ? *code : report(code.error());
}

int CommandLine::run_command(int argc, char** argv) {
  app_.parse(argc, argv);
  return exit_code_;
}

std::vector<std::string> shown_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!each->get_group().empty()) names.push_back(each->get_name());
  }
  return names;
}

}  // namespace copus
