// Jobs next to the given one: a larger cluster if nothing fits, a nearby batch if it suits the
// cluster better.
#pragma once

#include <cstdint>
#include <optional>

#include "copus/tuner/search.h"

namespace copus {

struct FittingCluster {
  std::int64_t nodes = 0, gpus = 0;
  RankedPlan best;
};

// Returns the smallest cluster of such nodes, larger than the model's, on which a plan fits, with
// the request's pins. Empty if there is none with a few times the GPUs that the state needs, or if
// too many sizes would have to be tried.
std::optional<FittingCluster> smallest_cluster(const StepModel& model,
                                               const SearchRequest& request);

struct BetterBatch {
  std::int64_t global_batch = 0;
  double faster = 0;  // per sample, as a share
  RankedPlan best;
};

// Returns the batch within a tenth of the model's whose best plan takes the least time per sample,
// if it is faster by more than `least`. Tries batches that are multiples of the cluster's divisors
// where the model's batch is not; searches at most `most_plans` plans, of which each batch is
// taken to have `searched`.
std::optional<BetterBatch> better_batch(const StepModel& model, const SearchRequest& request,
                                        const RankedPlan& best, std::int64_t searched, double least,
                                        std::int64_t most_plans = 2'000'000);

}  // namespace copus
