// Timeline: a schedule played action by action. It is exact for uneven stages; `predict` and the
// trace use it.
//
// Times are seconds from the start of the step's pipeline. Pure functions; thread-safe.
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
  // Delay of one activation or gradient message between two different pipeline ranks. It keeps
  // neither rank busy. Messages within one rank take no time.
  Seconds hop;
};

struct TimedAction {
  Action action;
  Seconds start;
  Seconds end;
};

struct Timeline {
  std::vector<std::vector<TimedAction>> ranks;  // as Schedule::ranks, in order
  Seconds total;                                // end of the last action on any rank
  std::vector<Seconds>
      last_backward_end;      // per rank: when its gradients are complete, weight parts included
  std::vector<Seconds> busy;  // per rank: sum of its actions' durations
};

// Plays the schedule. An action starts when its rank is free and its input has arrived: at the end
// of the action that produces it, plus the hop if that is on another rank. O(actions).
// REQUIRES: check_schedule(schedule) passes; times.chunks has schedule.chunks() entries.
Timeline run_timeline(const Schedule& schedule, const PipelineTimes& times);

}  // namespace copus
