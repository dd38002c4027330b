// Explains which pins leave a search without a plan, and which change would help.
#pragma once

#include "copus/base/result.h"
#include "copus/tuner/search.h"

namespace copus {

// Fails if the pins are the reason. The error names --fix or --micro-batches, the smallest set of
// pins that no plan can satisfy, and the nearest values that leave a plan. Succeeds if there is no
// plan without the pins either. REQUIRES: !has_plan(model, request).
Result<void> check_pins(const StepModel& model, const SearchRequest& request);

}  // namespace copus
