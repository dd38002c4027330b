// Closed forms of a pipeline's time and of the activations it holds, for the search: O(1), no
// allocation.
//
// For equal stages they equal the timeline (timeline.h); for uneven ones they approximate it.
// pipeline_test.cc holds both.
#pragma once

#include <cstdint>

#include "copus/base/units.h"
#include "copus/cost/timeline.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

struct PipelineShape {
  ScheduleKind kind = ScheduleKind::k1F1B;
  std::int64_t pp = 1;
  std::int64_t vp = 1;
  std::int64_t micro_batches = 1;
};

// Times of one micro-batch.
struct StageTimes {
  // The bottleneck rank's (largest forward + backward), each summed over its vp chunks.
  Seconds forward;
  Seconds backward_input;
  Seconds backward_weight;
  Seconds all_ranks;  // forward + backward of the whole model: the sum over all ranks
  Seconds hop;        // as PipelineTimes::hop

  constexpr Seconds backward() const { return backward_input + backward_weight; }
  constexpr Seconds work() const { return forward + backward(); }
};

// StageTimes of a pipeline whose ranks all take the same.
constexpr StageTimes equal_stages(std::int64_t pp, Seconds forward, Seconds backward_input,
                                  Seconds backward_weight, Seconds hop) noexcept {
  return {forward, backward_input, backward_weight,
          static_cast<double>(pp) * (forward + backward_input + backward_weight), hop};
}

// From the first forward to the end of the last backward on any rank. Uneven stages are taken as if
// the bottleneck were in the slowest place, the last rank, and hops met no slack: rather too long.
// REQUIRES: make_schedule would accept the shape.
Seconds pipeline_time(const PipelineShape& shape, const StageTimes& times) noexcept;

// A pipeline whose ranks are alike but for its ends, which carry the embedding and the head. Each
// is one micro-batch, summed over the rank's vp chunks. One rank alone is `first`; two are `first`
// and `last`.
struct RankTimes {
  ChunkTimes first;
  ChunkTimes middle;
  ChunkTimes last;
  Seconds hop;  // as PipelineTimes::hop
};

// The same, close for uneven ends too.
Seconds pipeline_time(const PipelineShape& shape, const RankTimes& times) noexcept;

// Peak number of chunk activations (each 1/vp of a rank's layers) that pipeline rank `rank` holds:
// peak_activations() of the schedule, without building it.
std::int64_t in_flight(const PipelineShape& shape, std::int64_t rank) noexcept;

}  // namespace copus
