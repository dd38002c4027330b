// Options in a TOML file: `global-batch = 32` is `--global-batch 32`. What the command line gives
// wins.
#pragma once

#include <string>
#include <vector>

#include "copus/args/option.h"
#include "copus/base/result.h"

namespace copus {

struct ConfigRules {
  // A file may serve two commands: the keys of the table of this name are the command's own, and
  // win.
  std::string own_table;
  std::vector<std::string> except;  // keys that are left alone
  // Keys outside tables that the command does not know are put there, and are no error.
  std::vector<std::string>* others = nullptr;
};

// Reads every option of `args` that the file names and nobody who wins over `from` has given. A key
// that is no option is an error with the nearest names.
Result<void> read_config(OptionGroup& args, const std::string& path, From from,
                         const ConfigRules& rules = {});

// The options as such a file has them, each by its InFile.
std::string to_toml(const OptionGroup& args);

}  // namespace copus
