// The all-to-all between the ranks that share a layer's experts: who sends how much to whom.
//
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "copus/cost/step.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// What a rank sends to another rank of its expert-parallel group, as shares of the dispatch buffer:
// of the copies of one rank's tokens, one per expert of a token.
struct ExpertFlow {
  std::int64_t destination = 0;
  double dispatch = 0;
  double combine = 0;
};

// Returns all flows of `rank`. `shares` are those of expert_rank_shares(). The sums over a group
// equal the cost model's (expert_sends) if the shares are equal.
std::vector<ExpertFlow> expert_flows(const StepModel& step, const ParallelPlan& plan,
                                     const std::vector<double>& shares, std::int64_t rank);

}  // namespace copus
