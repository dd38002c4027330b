// Computes the on-off pattern: when one GPU sends during a step.
//
// The pattern is read from the step's timeline. Inside an action the layers of a chunk follow each
// other evenly. Each layer has its bursts where the operators are: tensor parallel at the end of
// attention and MLP, the all-to-alls before and after the experts, each for the time that the cost
// model exposes. Context-parallel transfers and ZeRO's transfers run during the computation, for as
// long as they take. Messages between stages follow their action. Gradients follow the last
// backward pass, or run during it if the engine overlaps them. Times are those of a balanced gate;
// bytes follow the skew. Pure functions; thread-safe.
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
  // The micro-batches in the pattern: all of the step, or fewer if the timeline is limited.
  std::int64_t micro_batches = 0;
  Seconds span;                      // from the first forward pass to the last transfer
  std::vector<TimedAction> actions;  // the computation, in order
  std::vector<Burst> bursts;         // ordered by start

  // Returns the time during which at least one burst of the dimension is on.
  Seconds on_time(Dimension dimension) const;
};

// REQUIRES: step.validate(plan) passed; 0 <= gpu < plan.gpus(); 0 <= skew <= kMaxSkew.
TrafficPattern traffic_pattern(const StepModel& step, const ParallelPlan& plan, double skew,
                               std::int64_t gpu);

}  // namespace copus
