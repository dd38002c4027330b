// copus --version: what this program was built from.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "copus/base/result.h"

namespace copus {

// The answer to `copus --version [--json]`; nothing where `words`, what stands behind the program's
// name, ask for something else.
Result<std::optional<std::string>> version_answer(std::span<const char* const> words);

}  // namespace copus
