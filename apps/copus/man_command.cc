// copus man: prints the manual pages. The program generates them from the definitions of the
// commands, so that they always match them.
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/copus/build_facts.h"
#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "apps/copus/man_page.h"
#include "copus/base/text.h"

namespace copus {
namespace {

struct ManArgs : OptionGroup {
  Option<std::string> page{this, "page", text("PAGE"), "page to print, as \"copus plan\"", "copus"};
  Option<std::string> into{this, "--into", text("FOLDER"),
                           "write every page into this folder instead", Otherwise{"print one"}};
};

// Adds the pages of a command and of its subcommands. `path`: the command's path below copus; ""
// for copus itself.
void add_pages(const CommandLine& line, const CLI::App& command, const std::string& path,
               std::vector<ManPage>& pages) {
  ManPage page;
  page.name = path.empty() ? "copus" : "copus " + path;
  page.what = command.get_description();
  const std::string footer = command.get_footer();
  const std::string_view label = "Example: ";
  page.example = footer.starts_with(label) ? footer.substr(label.size()) : footer;
  page.version = fmt::format("copus {}", build_version());
  for (const Command& each : line.commands()) {
    if (each.path == path) page.args = each.args.get();
  }
  std::vector<const CLI::App*> below;
  for (const CLI::App* each : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (each->get_group().empty()) continue;
    page.commands.emplace_back(each->get_name(), each->get_description());
    page.see_also.push_back(page.name + " " + each->get_name());
    below.push_back(each);
  }
  if (!path.empty()) {
    const std::size_t end = page.name.rfind(' ');
    page.see_also.insert(page.see_also.begin(), page.name.substr(0, end));
  }
  pages.push_back(std::move(page));
  for (const CLI::App* each : below) {
    add_pages(line, *each, path.empty() ? each->get_name() : path + " " + each->get_name(), pages);
  }
}

Result<int> print_pages(CommandLine& line, const ManArgs& args) {
  std::vector<ManPage> pages;
  add_pages(line, line.app(), "", pages);
  if (args.into.known()) {
    const std::filesystem::path folder(*args.into);
    for (const ManPage& page : pages) {
      COPUS_TRY_VOID(
          write_file((folder / (man_page_name(page.name) + ".1")).string(), man_page(page)));
    }
    return kOk;
  }
  std::vector<std::string> names;
  for (const ManPage& page : pages) {
    if (page.name == *args.page || page.name == "copus " + *args.page) {
      fmt::print("{}", man_page(page));
      return kOk;
    }
    names.push_back(page.name);
  }
  return field_error("page", "got {}; want {}", *args.page, join_or(names));
}

}  // namespace

void add_man_command(CommandLine& line) {
  line.add<ManArgs>({"man", "Print a manual page", "copus man \"copus plan\" | man -l -"},
                    [&line](const ManArgs& args) { return print_pages(line, args); })
      .group("");
}

}  // namespace copus
