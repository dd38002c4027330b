// Prints the results of copus validate as text and as JSON.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "copus/base/json.h"
#include "copus/validate/accuracy.h"
#include "copus/validate/likely_reason.h"

namespace copus {

struct Validation {
  std::vector<PricedRun> runs;
  std::map<std::string, std::size_t>
      unknown_frameworks;  // number of rows, by the framework that they name
  std::size_t top = 10;    // how many of the worst rows to print
};

// 0.123 -> "12.3%"; "-" if there is no value.
std::string percent(const std::optional<double>& fraction);

std::string validation_to_text(const Validation& validation);
// Returns a text on the assumptions that were used and the rows that were not priced; empty if
// there are none.
std::string notes_to_text(const Validation& validation);
Json validation_to_json(const Validation& validation);

}  // namespace copus
