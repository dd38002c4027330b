// The configurations that a run may be moved to, with what the cost model predicts of each.
#pragma once

#include <functional>
#include <vector>

#include "copus/cost/step.h"
#include "copus/goodput/configuration.h"

namespace copus {

struct Candidate {
  Configuration at;
  StepBreakdown predicted;  // one step
};

struct CandidateRequest {
  std::int64_t seq_len = 0;
  std::vector<std::int64_t> batches;  // ascending, no doubles
  std::vector<PartialPlan> spaces;  // each: what is pinned; all are searched (as zero=0 and zero=1)
  // Of a batch and a space, so many layouts (tp, pp, dp, …) at most: the fastest by prediction.
  std::int64_t layouts_per_batch = 64;
  // Plans whose placement is wanted at every batch, however slow: where the run starts.
  std::vector<ParallelPlan> keep;
  // Which plans the engine can run; empty: all. What a space can pin is better pinned: a layout of
  // which nothing runs is looked through to its last variant.
  std::function<bool(const ParallelPlan&, std::int64_t global_batch)> runnable;
};

// Every memory-feasible (layout, batch), with the fastest runnable variant (micro-batch, vp, sp, …)
// of each layout; and every placement found so at one batch at the other batches too, where it
// fits, so that a run can always change its batch without moving its state. Sorted by batch, then
// by predicted time; no configuration twice.
std::vector<Candidate> enumerate_candidates(const ModelSpec& model, const ClusterSpec& cluster,
                                            const CostOptions& cost,
                                            const CandidateRequest& request);

// One configuration that is not among them (where a run starts, or one that a user asks for).
// REQUIRES: the plan is valid.
Candidate predict_candidate(const ModelSpec& model, const ClusterSpec& cluster,
                            const CostOptions& cost, std::int64_t seq_len, const Configuration& at);

// lowest, 2 x lowest, … and highest. REQUIRES: 1 <= lowest <= highest.
std::vector<std::int64_t> batch_ladder(std::int64_t lowest, std::int64_t highest);

}  // namespace copus
