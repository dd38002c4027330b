// Finds the ranks that keep the others waiting, from the activities of all ranks.
#pragma once

#include <string>
#include <vector>

#include "copus/train/health/activity.h"

namespace copus {

// At most this many ranks are looked at when something hangs.
constexpr int kMaxWatched = 256;
// Returns all ranks, or the first kMaxWatched of `concerned` if the run has more than kMaxWatched.
std::vector<int> ranks_to_watch(int world_size, const std::vector<int>& concerned);

struct Stall {
  RankActivity rank;
  bool silent = false;  // its watchdog does not tick: the rank is stopped, dead or out of reach
  Seconds still;        // how long the rank has been silent, or at the same thing
};

// Returns the stalled ranks, from two readings that are some ticks apart. A rank is silent if its
// watchdog has not ticked between them. A rank is stuck if its watchdog ticks, but the rank has
// done one thing for `still` that is not waiting for other ranks. If there are silent ranks,
// returns only those, since they explain the others.
std::vector<Stall> stalled_ranks(const std::vector<RankActivity>& before,
                                 const std::vector<RankActivity>& after, Seconds still);

// The same after all ranks have ended: returns those that fell silent `still` before the last rank,
// or that were stuck.
std::vector<Stall> stalled_before_the_end(const std::vector<RankActivity>& all, Seconds still);

// "rank 3 has been silent for 12 s, in the backward pass of micro-batch 2 of step 7", "rank 1 has
// been saving a checkpoint of step 120 for 1200 s". Returns "" if there is no stall.
std::string to_text(const std::vector<Stall>& stalls);
// "in the optimizer of step 7", "saving a checkpoint of step 120".
std::string place_of(const RankActivity& rank);

}  // namespace copus
