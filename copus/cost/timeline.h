// Timeline: a schedule played out in time, action by action. Exact for uneven stages; `predict` and
// the trace use it.
//
// Seconds from the start of the step's pipeline. Pure functions; thread-safe.
#pragma once

#include <vector>

#include "copus/base/units.h"
#include "copus/spec/schedule.h"

namespace copus {

// Time of one micro-batch in one model chunk. A fused kBackward takes the sum of the two parts.
struct ChunkTimes {
  Seconds forward;
  Seconds backward_input;
  Seconds backward_weight;

  constexpr Seconds backward() const { return backward_input + backward_weight; }
};

struct PipelineTimes {
  std::vector<ChunkTimes> chunks;  // in model order, pp*vp entries
  // Delay of one activation or gradient message between two different pipeline ranks. Pure latency
  // on the edge: neither rank is kept busy by it. Edges within one rank cost nothing.
  Seconds hop;
};

struct TimedAction {
  Action action;
  Seconds start;
  Seconds end;
};

struct Timeline {
  std::vector<std::vector<TimedAction>> ranks;  // as Schedule::ranks, in order
  Seconds total;                                // end of the last action of all
  std::vector<Seconds>
      last_backward_end;      // per rank: when its gradients are complete, weight parts included
  std::vector<Seconds> busy;  // per rank: sum of its actions' durations
};

// An action starts when its rank is free and what it needs has arrived (producer's end, plus the
// hop if that was another rank). O(actions). REQUIRES: check_schedule(schedule) passes;
// times.chunks has schedule.chunks() entries.
Timeline run_timeline(const Schedule& schedule, const PipelineTimes& times);

}  // namespace copus
