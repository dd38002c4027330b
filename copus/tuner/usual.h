// The plan that users of a framework choose without a search, by the framework's usual rule.
#pragma once

#include <optional>

#include "copus/cost/framework.h"
#include "copus/tuner/search.h"

namespace copus {

// Returns the fastest plan that follows the rule, or the first that fits (tp grows before pp). Only
// the rule's dimensions of model parallelism are above 1; each layout has the first ZeRO stage that
// fits. tp stays inside the node, and at 8 at most: rules are from nodes of eight GPUs. cp is above
// 1 only if nothing fits without. Recompute, micro-batch, virtual stages and experts are the best
// for the layout, and sequence parallelism is on where the framework has it. Keeps the request's
// pins and ignores its options for reporting. Empty if nothing fits.
std::optional<RankedPlan> usual_plan(const StepModel& model, const SearchRequest& pinned,
                                     const UsualRule& rule);

}  // namespace copus
