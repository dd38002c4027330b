// A command's options from a TOML file: `global-batch = 32` is `--global-batch 32`. What the
// command line gives wins.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "copus/base/result.h"

namespace copus {

struct ConfigRules {
  std::vector<std::string> except;  // keys that are left alone
  // Keys outside tables that the command does not know are put there, and are no error.
  std::vector<std::string>* others = nullptr;
};

// Sets every option of `command` that the file names and the command line did not give. A key that
// is no option is an error with the nearest names.
//
// A file may serve two commands: the keys of a table that has this command's name are its own, and
// win; another command's table is left alone.
Result<void> apply_config(CLI::App& command, const std::string& path,
                          const ConfigRules& rules = {});

// A key outside tables whose value is a text; nothing where there is none, or no such file.
std::optional<std::string> config_value(const std::string& path, const std::string& key);

}  // namespace copus
