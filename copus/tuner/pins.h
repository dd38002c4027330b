// Which pins leave a search nothing to look at, and what would.
#pragma once

#include "copus/base/result.h"
#include "copus/tuner/search.h"

namespace copus {

// Names --fix or --micro-batches, the fewest pins that no plan can have together, and the nearest
// values that leave one. Passes where the pins are not at fault: there is no plan without them.
// REQUIRES: !has_plan(model, request).
Result<void> check_pins(const StepModel& model, const SearchRequest& request);

}  // namespace copus
