// Manual pages in roff, for man and mandoc (man(7)).
#pragma once

#include <string>
#include <vector>

#include "copus/args/option.h"

namespace copus {

struct ManPage {
  std::string name;     // "copus checkpoint export"; its page is copus-checkpoint-export
  std::string what;     // one line
  std::string example;  // commands, one per line; may be empty
  const OptionGroup* args = nullptr;                          // null: no options of its own
  std::vector<std::pair<std::string, std::string>> commands;  // subcommands: name and what it does
  std::vector<std::string> see_also;                          // names as above
  std::string version;                                        // "copus 0.1.0"
};

// Returns the name of the page of a command: "copus-checkpoint-export".
std::string man_page_name(const std::string& name);

// Returns the text of the page.
std::string man_page(const ManPage& page);

}  // namespace copus
