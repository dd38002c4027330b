// The plan that users of a framework choose without a search, by the framework's usual rule.
#pragma once

#include <optional>

#include "copus/cost/framework.h"
#include "copus/tuner/search.h"

namespace copus {

// Returns the plan of the rule: its dimensions of model parallelism grow until the model fits, with
// the first ZeRO stage that fits. tp stays inside the node, and at 8 at most: rules are from nodes
// of eight GPUs. Recompute, micro-batch and virtual stages are the best for this layout, and
// sequence parallelism is on where the framework has it. Keeps the request's pins and ignores its
// options for reporting. Empty if nothing fits.
std::optional<RankedPlan> usual_plan(const StepModel& model, const SearchRequest& pinned,
                                     const UsualRule& rule);

}  // namespace copus
