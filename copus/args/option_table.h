// Formats options for people: for --help, and as tables in documents.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "copus/args/option.h"

namespace copus {

// Returns the text that follows the flag: "N", "off|on", "FILE ...". Empty for a positional option.
std::string value_text(const AnyOption& option);
// Returns the option's purpose, range and default, in lines of at most `width` characters.
std::string help_text(const AnyOption& option, std::size_t width);

// Returns a table with one line for each option whose own group has this title.
std::string markdown_table(const OptionGroup& args, std::string_view title);

}  // namespace copus
