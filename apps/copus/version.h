// copus --version: prints what this program was built from.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "copus/base/result.h"

namespace copus {

// Returns the answer to `copus --version [--json]`; nothing if `words` ask for something else, and
// an error for other words after --version. `words`: the arguments, without the program's name.
Result<std::optional<std::string>> version_answer(std::span<const char* const> words);

}  // namespace copus
