// Reads and writes options in a TOML file: `global-batch = 32` means `--global-batch 32`. An option
// on the command line overrides the file.
#pragma once

#include <string>
#include <vector>

#include "copus/args/option.h"
#include "copus/base/result.h"

namespace copus {

struct ConfigRules {
  // The name of a table whose keys are for this command only. They override the same keys outside
  // the table, so that one file can serve two commands. Empty: the command has no table.
  std::string own_table;
  std::vector<std::string> except;  // keys outside the table that are ignored
  // Receives the keys outside the table that the command does not know. Null: such a key is an
  // error.
  std::vector<std::string>* others = nullptr;
};

// Reads the options of `args` that the file names. An option that already has a value from `from`
// or from a stronger source keeps that value. A key that is not an option is an error, which lists
// the nearest names.
Result<void> read_config(OptionGroup& args, const std::string& path, From from,
                         const ConfigRules& rules = {});

// Returns the text of such a file. Each option's InFile decides whether the option is in it.
std::string to_toml(const OptionGroup& args);

}  // namespace copus
