// A command's options from a TOML file: `global-batch = 32` is `--global-batch 32`. What the
// command line gives wins.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "copus/base/result.h"

namespace copus {

// Sets every option of `command` that the file names and the command line did not give. A key that
// is no option is an error with the nearest names. `except`: keys that are left alone.
Result<void> apply_config(CLI::App& command, const std::string& path,
                          const std::vector<std::string>& except = {});

}  // namespace copus
