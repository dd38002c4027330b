// Who keeps the others waiting, from what ranks were doing.
#pragma once

#include <string>
#include <vector>

#include "copus/train/health/activity.h"

namespace copus {

// Ranks that are looked at when something hangs; in a larger run those concerned alone are.
constexpr int kMaxWatched = 256;
// 0 .. world_size-1, or `concerned` where there are too many.
std::vector<int> ranks_to_watch(int world_size, const std::vector<int>& concerned);

struct Stall {
  RankActivity rank;
  bool silent = false;  // stopped, dead or out of reach: its watchdog says nothing either
  Seconds still;        // how long it has been at this
};

// Two looks, some ticks apart. Silent: the watchdog has not ticked between them. Stuck: it ticks,
// and for `still` the rank has been at one thing that is no waiting for others. Silent ones
// explain the rest, so where there are some only they are named.
std::vector<Stall> stalled_ranks(const std::vector<RankActivity>& before,
                                 const std::vector<RankActivity>& after, Seconds still);

// After all have ended: those that fell silent long before the others, or were stuck.
std::vector<Stall> stalled_before_the_end(const std::vector<RankActivity>& all, Seconds still);

// "rank 3 has been silent for 12 s, in the backward pass of micro-batch 2 of step 7", "rank 1 has
// been saving a checkpoint of step 120 for 1200 s"; empty: none.
std::string to_text(const std::vector<Stall>& stalls);
// "in the optimizer of step 7", "saving a checkpoint of step 120".
std::string place_of(const RankActivity& rank);

}  // namespace copus
