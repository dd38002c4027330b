// Manual pages in roff, as man and mandoc read them (man(7)).
#pragma once

#include <string>
#include <vector>

#include "copus/args/option.h"

namespace copus {

struct ManPage {
  std::string name;     // "copus checkpoint export"; its page is copus-checkpoint-export
  std::string what;     // one line
  std::string example;  // commands, a line each; may be empty
  const OptionGroup* args = nullptr;                          // null: none of its own
  std::vector<std::pair<std::string, std::string>> commands;  // below it, and what they do
  std::vector<std::string> see_also;                          // names as above
  std::string version;                                        // "copus 0.1.0"
};

// "copus-checkpoint-export".
std::string man_page_name(const std::string& name);

std::string man_page(const ManPage& page);

}  // namespace copus
