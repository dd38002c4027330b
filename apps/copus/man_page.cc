#include "apps/copus/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "copus/args/option_table.h"
#include "copus/base/text.h"

namespace copus {
namespace {

// Escapes text so that roff shows it unchanged. A hyphen becomes a minus sign, which can be copied
// to a shell. A dot or an apostrophe at the start of a line would be a request to roff.
std::string roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_begins = c == '\n';
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

// Returns the option as a user types it: "--top N", or the name of a positional option.
std::string as_typed(const AnyOption& option) {
  if (option.is_positional()) return italic(option.flag());
  const std::string value = value_text(option);
  return bold(option.flag()) + (value.empty() ? "" : " " + italic(value));
}

std::string synopsis_section(const ManPage& page) {
  std::string text = ".SH SYNOPSIS\n" + bold(page.name);
  if (!page.commands.empty()) text += " " + italic("COMMAND");
  bool has_others = page.args == nullptr;
  if (page.args != nullptr) {
    for (const AnyOption* option : page.args->options()) {
      if (option->required()) {
        text += " " + as_typed(*option);
      } else if (option->is_positional()) {
        text += " [" + as_typed(*option) + "]";
      } else {
        has_others = true;
      }
    }
  }
  return text + (has_others ? " [" + italic("OPTIONS") + "]\n" : "\n");
}

// Returns whether this is the page of the program itself, and not the page of a command.
bool is_program(const ManPage& page) { return page.name.find(' ') == std::string::npos; }

std::string man_entry(const std::string& head, std::string_view text) {
  return fmt::format(".TP\n{}\n{}\n", head, roff(text));
}

// Options without a title come first, as in --help.
std::string options_section(const ManPage& page) {
  std::vector<std::string> titles{""};
  std::map<std::string, std::string> entries;
  if (page.args != nullptr) {
    for (const AnyOption* option : page.args->options()) {
      std::string& text = entries[option->title()];
      if (text.empty() && !option->title().empty()) titles.push_back(option->title());
      text +=
          man_entry(as_typed(*option), help_text(*option, std::numeric_limits<std::size_t>::max()));
    }
  }
  if (is_program(page)) {
    entries[""] += man_entry(bold("--version") + " [" + bold("--json") + "]",
                             "print the version, the commit and the libraries of this program");
  }
  entries[""] += man_entry(bold("-h") + ", " + bold("--help"), "print the command's help");
  std::string text = ".SH OPTIONS\n";
  for (const std::string& title : titles) {
    if (!title.empty()) text += fmt::format(".SS {}\n", roff(title));
    text += entries[title];
  }
  return text;
}

std::string commands_section(const ManPage& page) {
  std::string text = ".SH COMMANDS\n";
  for (const auto& [name, what] : page.commands) text += man_entry(bold(name), what);
  return text;
}

std::string see_also_section(const std::vector<std::string>& names) {
  std::string text = ".SH SEE ALSO\n";
  for (const std::string& name : names) {
    text += fmt::format("\\fB{}\\fR(1){}\n", roff(man_page_name(name)),
                        &name == &names.back() ? "" : ",");
  }
  return text;
}

constexpr const char* kEnvironmentSection =
    ".SH ENVIRONMENT\n"
    ".TP\n\\fBCOPUS_CATALOG\\fR\na folder with gpus.json, clusters/, frameworks/ or models/, which "
    "are "
    "read before the built\\-in catalog\n";

constexpr const char* kExitStatusSection =
    ".SH EXIT STATUS\n"
    ".TP\n0\nsuccess\n"
    ".TP\n1\nthe command ran, and the answer is no\n"
    ".TP\n2\nbad input, with one line on standard error\n";

}  // namespace

std::string man_page_name(const std::string& name) {
  std::string page = name;
  std::replace(page.begin(), page.end(), ' ', '-');
  return page;
}

std::string man_page(const ManPage& page) {
  std::string title = man_page_name(page.name);
  for (char& c : title) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  std::string text =
      fmt::format(".TH {} 1 \"\" \"{}\" \"Copus manual\"\n", roff(title), roff(page.version));
  text += fmt::format(
      ".SH NAME\n{} \\- {}\n", roff(man_page_name(page.name)),
      roff(page.what.ends_with('.') ? page.what.substr(0, page.what.size() - 1) : page.what));
  text += synopsis_section(page);
  if (!page.commands.empty()) text += commands_section(page);
  text += options_section(page);
  if (is_program(page)) text += kEnvironmentSection;
  text += kExitStatusSection;
  if (!page.example.empty()) {
    text += ".SH EXAMPLES\n.nf\n" + roff(page.example) + "\n.fi\n";
  }
  if (!page.see_also.empty()) text += see_also_section(page.see_also);
  return text;
}

}  // namespace copus
