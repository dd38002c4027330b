// Writes the timeline of one step as a Perfetto trace.
#pragma once

#include <string>

#include "copus/base/result.h"
#include "copus/cost/step.h"

namespace copus {

// Returns the trace: one track per pipeline rank, with arrows for messages between stages, and with
// the gradient reduction and the optimizer at its end. An error if the step has more actions than a
// viewer can load.
Result<std::string> step_trace(const StepModel& model, const ParallelPlan& plan,
                               const StepEstimate& estimate);

}  // namespace copus
