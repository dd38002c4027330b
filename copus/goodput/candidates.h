// The configurations that a run may move to, with the cost model's prediction for each.
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
  std::vector<std::int64_t> batches;  // ascending, no duplicates
  std::vector<PartialPlan> spaces;    // all are searched (as zero=0 and zero=1)
  // At most this many layouts (tp, pp, dp, …) for each batch and space: the fastest by prediction.
  std::int64_t layouts_per_batch = 64;
  // Plans whose placement is wanted at every batch, however slow it is: the run's first plan.
  std::vector<ParallelPlan> keep;
  // Which plans the engine can run; empty: all. Prefer `spaces` where a condition can be pinned: if
  // no variant of a layout can run, the search has to try every variant.
  std::function<bool(const ParallelPlan&, std::int64_t global_batch)> runnable;
};

// Every (layout, batch) that fits in memory, with the fastest runnable variant (micro-batch, vp,
// sp, …) of each layout. A placement found at one batch is added at every other batch where it
// fits, so that a run can always change its batch without moving its state. Sorted by batch, then
// by predicted time, without duplicates.
std::vector<Candidate> enumerate_candidates(const ModelSpec& model, const ClusterSpec& cluster,
                                            const CostOptions& cost,
                                            const CandidateRequest& request);

// One configuration that is not among these: a run's first one, or one that a user asks for.
// REQUIRES: the plan is valid.
Candidate predict_candidate(const ModelSpec& model, const ClusterSpec& cluster,
                            const CostOptions& cost, std::int64_t seq_len, const Configuration& at);

// lowest, 2 x lowest, … and highest. REQUIRES: 1 <= lowest <= highest.
std::vector<std::int64_t> batch_ladder(std::int64_t lowest, std::int64_t highest);

}  // namespace copus
