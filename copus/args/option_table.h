// Options as people read them: in --help, and as tables of documents.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "copus/args/option.h"

namespace copus {

// What stands behind the flag: "N", "off|on", "FILE ..."; behind a place, nothing.
std::string value_text(const AnyOption& option);
// What it is for, its range and its default, in lines of at most `width` characters.
std::string help_text(const AnyOption& option, std::size_t width);

// A line for each option that stands directly under the title.
std::string markdown_table(const OptionGroup& args, std::string_view title);

}  // namespace copus
