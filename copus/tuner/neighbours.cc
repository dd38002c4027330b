#include "copus/tuner/neighbours.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

namespace copus {
namespace {

using Int = std::int64_t;

constexpr Int kMostSizes = 256;    // cluster sizes that are searched
constexpr double kMostTimes = 64;  // the largest cluster, as a multiple of the least
constexpr std::size_t kMostBatches = 12;
constexpr double kNear = 0.1;

SearchRequest only_best(const SearchRequest& request) {
  SearchRequest best;
  best.fixed = request.fixed;
  best.micro_batches = request.micro_batches;
  best.top = 1;
  return best;
}

// Returns the fewest nodes that hold weights, gradients and optimizer state, sharded over all GPUs.
Int fewest_nodes(const StepModel& model) {
  const double bytes = element_bytes(model.options()) + gradient_bytes(model.options()) +
                       optimizer_bytes(model.options());
  const double state = bytes * static_cast<double>(model.model().total_params());
  const double node = model.budget().v * static_cast<double>(model.cluster().gpus_per_node);
  return static_cast<Int>(std::ceil(state / node));
}

}  // namespace

std::optional<FittingCluster> smallest_cluster(const StepModel& model,
                                               const SearchRequest& request) {
  ClusterSpec cluster = model.cluster();
  const Int first = std::max(cluster.nodes + 1, fewest_nodes(model));
  const Int most = std::min(static_cast<Int>(kMostTimes * static_cast<double>(first)),
                            kMaxGpus / cluster.gpus_per_node);
  for (Int nodes = first; nodes <= most && nodes - first < kMostSizes; ++nodes) {
    cluster.nodes = nodes;
    const StepModel larger(model.model(), cluster, model.seq_len(), model.global_batch(),
                           model.options(), model.limits());
    const SearchResult found = search(larger, only_best(request));
    if (!found.plans.empty()) return FittingCluster{nodes, cluster.gpus(), found.plans.front()};
  }
  return std::nullopt;
}

std::optional<BetterBatch> better_batch(const StepModel& model, const SearchRequest& request,
                                        const RankedPlan& best, std::int64_t searched, double least,
                                        std::int64_t most_plans) {
  const Int batch = model.global_batch(), gpus = model.cluster().gpus();
  const Int low = static_cast<Int>(std::ceil(static_cast<double>(batch) * (1 - kNear)));
  const Int high = static_cast<Int>(static_cast<double>(batch) * (1 + kNear));
  // Batches by the largest divisor of the cluster that they are a multiple of and the batch is not.
  std::vector<std::pair<Int, Int>> candidates;
  std::set<Int> seen;
  for (Int divisor = gpus; divisor >= 2; --divisor) {
    if (gpus % divisor != 0 || batch % divisor == 0) continue;
    for (const Int near : {batch / divisor * divisor, (batch / divisor + 1) * divisor}) {
      if (near < low || near > high || near < 1 || !seen.insert(near).second) continue;
      candidates.emplace_back(divisor, near);
    }
  }
  const auto affordable = static_cast<std::size_t>(most_plans / std::max<Int>(1, searched));
  candidates.resize(std::min({candidates.size(), affordable, kMostBatches}));
  const double per_sample = best.estimate.time.v / static_cast<double>(batch);
  std::optional<BetterBatch> better;
  for (const auto& [divisor, near] : candidates) {
    const StepModel other(model.model(), model.cluster(), model.seq_len(), near, model.options(),
                          model.limits());
    SearchResult found = search(other, only_best(request));
    if (found.plans.empty()) continue;
    const double time = found.plans.front().estimate.time.v / static_cast<double>(near);
    const double faster = per_sample / time - 1;
    if (faster > (better ? better->faster : least)) {
      better = BetterBatch{near, faster, std::move(found.plans.front())};
    }
  }
  return better;
}

}  // namespace copus
