// Which part of a step's samples is the smaller batch for the noise scale.
#pragma once

#include <cstdint>

#include "copus/spec/parallel_plan.h"

namespace copus {

// The number of micro-batches of each replica whose gradient's norm is measured before the rest is
// added. Where the micro-batch allows, it is the same number of samples at every layout: those that
// a replica would have with one replica per rank, at most a quarter of the batch and at most 8. 0:
// the configuration has no such part (one micro-batch, one replica). All micro-batches: the
// replica's own gradient is the smaller batch.
std::int64_t noise_prefix(const ParallelPlan& plan, std::int64_t global_batch);

}  // namespace copus
