// Which part of a step's samples gives the noise scale its smaller batch.
#pragma once

#include <cstdint>

#include "copus/spec/parallel_plan.h"

namespace copus {

// The micro-batches whose gradient's norm is taken before the rest is added, for the noise scale.
// As many samples at every layout, where its micro-batch allows: those that a replica would have if
// every rank were one, at most a quarter of the batch and 8. 0: this configuration has no such part
// (one micro-batch, one replica); all of them: the replica's own gradient serves.
std::int64_t noise_prefix(const ParallelPlan& plan, std::int64_t global_batch);

}  // namespace copus
