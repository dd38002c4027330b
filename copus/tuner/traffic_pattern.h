// The on-off pattern: when one GPU sends, over a step.
//
// Read from the step's timeline. Inside an action a chunk's layers follow each other evenly, each
// with its bursts where the operators put them: tensor parallel at the end of attention and MLP,
// experts' all-to-alls around the experts, for as long as the cost model exposes them; context
// parallel and ZeRO's transfers beside the computation, for as long as they take. Messages between
// stages follow their action; gradients follow the last backward pass, or run under it where the
// engine overlaps them. Times are those of a balanced gate; bytes follow the skew. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "copus/base/units.h"
#include "copus/cost/step.h"
#include "copus/tuner/traffic_volume.h"

namespace copus {

struct Burst {
  Seconds start;
  Seconds end;
  Dimension dimension = Dimension::kTp;
  Bytes bytes;
};

struct TrafficPattern {
  std::int64_t gpu = 0;
  // All of the step's, unless that is more than the timeline is played for.
  std::int64_t micro_batches = 0;
  Seconds span;                      // from the first forward pass to the last transfer
  std::vector<TimedAction> actions;  // the computation, in order
  std::vector<Burst> bursts;         // by start

  // Time in which at least one burst of the dimension is on.
  Seconds on_time(Dimension dimension) const;
};

// REQUIRES: step.validate(plan) passed; 0 <= gpu < plan.gpus(); 0 <= skew <= kMaxSkew.
TrafficPattern traffic_pattern(const StepModel& step, const ParallelPlan& plan, double skew,
                               std::int64_t gpu);

}  // namespace copus
