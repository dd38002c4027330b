// Options in a TOML file: `global-batch = 32` is `--global-batch 32`. What the command line gives
// wins.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "copus/args/option.h"
#include "copus/base/result.h"

namespace copus {

inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20U;

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

// The values of a file's options, by name, as texts.
Result<std::map<std::string, std::string>> read_option_texts(const std::string& toml,
                                                             const std::string& where);

// The options as such a file has them, each by its InFile.
std::string to_toml(const OptionGroup& args);

// A key outside tables whose value is a text; nothing where there is none, or no such file.
std::optional<std::string> config_value(const std::string& path, const std::string& key);

}  // namespace copus
