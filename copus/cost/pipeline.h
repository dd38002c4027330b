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

// A pipeline whose ranks are alike but for its ends, which carry the embedding and the head. Each
// is one micro-batch, summed over the rank's vp chunks. One rank alone is `first`; two are `first`
// and `last`.
struct RankTimes {
  ChunkTimes first;
  ChunkTimes middle;
  ChunkTimes last;
  Seconds hop;  // as PipelineTimes::hop
  // Mean work of the middle ranks over that of `middle`, where `middle` is the slowest of them.
  double middle_mean = 1;
};

// RankTimes of a pipeline whose ranks all take the same.
constexpr RankTimes equal_ranks(const ChunkTimes& rank, Seconds hop) noexcept {
  return {rank, rank, rank, hop, 1};
}

// From the first forward to the end of the last backward on any rank: exact for equal ranks, close
// for uneven ends. REQUIRES: make_schedule would accept the shape.
Seconds pipeline_time(const PipelineShape& shape, const RankTimes& times) noexcept;

// Peak number of chunk activations (each 1/vp of a rank's layers) that pipeline rank `rank` holds:
// peak_activations() of the schedule, without building it.
std::int64_t in_flight(const PipelineShape& shape, std::int64_t rank) noexcept;

}  // namespace copus
