// Closed forms of a pipeline's time and of the activations that it holds, for the search: O(1), no
// allocation.
//
// For equal stages they equal the timeline (timeline.h); for uneven stages they approximate it.
// pipeline_test.cc checks both.
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

// Times of a pipeline whose middle ranks are alike and whose ends carry the embedding and the head.
// Each is the time of one micro-batch, summed over the rank's vp chunks. A single rank is `first`;
// two ranks are `first` and `last`.
struct RankTimes {
  ChunkTimes first;
  ChunkTimes middle;
  ChunkTimes last;
  Seconds hop;  // as PipelineTimes::hop
  // Mean work of the middle ranks divided by that of `middle`, the slowest of them.
  double middle_mean = 1;
};

// Returns the RankTimes of a pipeline whose ranks all take the same time.
constexpr RankTimes equal_ranks(const ChunkTimes& rank, Seconds hop) noexcept {
  return {rank, rank, rank, hop, 1};
}

// Returns the time from the first forward to the end of the last backward on any rank: exact for
// equal ranks (for interleaved ones if the hop is short; see pipeline.cc), close for uneven ends.
// REQUIRES: make_schedule would accept the shape.
Seconds pipeline_time(const PipelineShape& shape, const RankTimes& times) noexcept;

// Returns the peak number of chunk activations (each 1/vp of a rank's layers) that pipeline rank
// `rank` holds. It equals peak_activations() of the schedule, but builds no schedule.
std::int64_t in_flight(const PipelineShape& shape, std::int64_t rank) noexcept;

}  // namespace copus
