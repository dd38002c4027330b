// Explains which pins leave a search without a plan, and which change would help.
#pragma once

#include "copus/base/result.h"
#include "copus/tuner/search.h"

namespace copus {

// The error names --fix or --micro-batches, the smallest set of pins that no plan can satisfy, and
// the nearest values that leave a plan. Succeeds if the pins are not the reason, because there is
// no plan without them either. REQUIRES: !has_plan(model, request).
Result<void> check_pins(const StepModel& model, const SearchRequest& request);

}  // namespace copus
