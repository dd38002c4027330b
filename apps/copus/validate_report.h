// What copus validate found, as text and as JSON.
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
  std::map<std::string, std::size_t> unknown_frameworks;  // rows by the name that they state
  std::size_t top = 10;                                   // of the worst rows
};

// 0.123 -> "12.3%"; "-" where there is none.
std::string percent(const std::optional<double>& fraction);

std::string validation_to_text(const Validation& validation);
// What was assumed, and what was not priced: nothing where all is stated and priced.
std::string notes_to_text(const Validation& validation);
Json validation_to_json(const Validation& validation);

}  // namespace copus
