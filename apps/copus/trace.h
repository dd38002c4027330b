// The timeline of one step as a Perfetto trace.
#pragma once

#include <string>

#include "copus/base/result.h"
#include "copus/cost/step.h"

namespace copus {

// One track per pipeline rank, with stage-to-stage messages as arrows; then gradient reduction and
// optimizer. An error when the step has more actions than a viewer can take.
Result<std::string> step_trace(const StepModel& model, const ParallelPlan& plan,
                               const StepEstimate& estimate);

}  // namespace copus
