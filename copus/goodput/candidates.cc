#include "copus/goodput/candidates.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "copus/tuner/search.h"

namespace copus {
namespace {

using Int = std::int64_t;
using enum PlanField;
using Accept = std::function<bool(const ParallelPlan&)>;

// The space with every key pinned that defines the layout of `plan`.
PartialPlan pin_layout(PartialPlan space, const ParallelPlan& plan) {
  space.pin({kTp, kCp, kPp, kDp, kEp, kEtp}, plan);
  return space;
}

PartialPlan pin_placement(PartialPlan space, const ParallelPlan& plan) {
  space = pin_layout(std::move(space), plan);
  space.pin({kVp, kZero, kSchedule}, plan);
  if (!plan.stage_layers.empty()) space.pin({kStageLayers}, plan);
  return space;
}

// The fastest plan of the space that `accept` allows. It simulates a few plans, then more of them,
// so that most calls end early and none misses a plan.
std::optional<RankedPlan> fastest(const StepModel& model, const PartialPlan& space,
                                  const Accept& accept) {
  SearchRequest request;
  request.fixed = space;
  request.variants = true;
  for (request.top = 16;; request.top *= 8) {
    SearchResult found = search(model, request);
    for (RankedPlan& ranked : found.plans) {
      if (accept(ranked.plan)) return std::move(ranked);
    }
    if (found.feasible <= request.top) return std::nullopt;
  }
}

// For the `most` fastest layouts that have an accepted variant: the fastest such variant.
std::vector<RankedPlan> fastest_layouts(const StepModel& model, const PartialPlan& space, Int most,
                                        const Accept& accept) {
  SearchRequest request;
  request.fixed = space;
  for (request.top = most;; request.top *= 4) {
    std::vector<RankedPlan> accepted;
    SearchResult found = search(model, request);
    for (RankedPlan& ranked : found.plans) {
      if (accept(ranked.plan)) {
        accepted.push_back(std::move(ranked));
      } else if (auto variant = fastest(model, pin_layout(space, ranked.plan), accept)) {
        accepted.push_back(*std::move(variant));
      }
      if (static_cast<Int>(accepted.size()) == most) return accepted;
    }
    if (static_cast<Int>(found.plans.size()) < request.top) return accepted;
  }
}

// A placement that was found at some batch, and the space in which it was found.
struct Placement {
  PartialPlan space;
  ParallelPlan plan;
};

// The candidates of one batch.
class Rung {
 public:
  Rung(const ModelSpec& model, const ClusterSpec& cluster, const CostOptions& cost,
       const CandidateRequest& request, Int batch)
      : step_(model, cluster, request.seq_len, batch, cost), runnable_(request.runnable) {}

  void search_layouts(const PartialPlan& space, Int most, std::vector<Placement>& placements) {
    auto accept = [&](const ParallelPlan& plan) { return runs(plan); };
    for (const RankedPlan& ranked : fastest_layouts(step_, space, most, accept)) {
      offer(ranked);
      const bool known = std::any_of(
          placements.begin(), placements.end(),
          [&](const Placement& placement) { return same_placement(placement.plan, ranked.plan); });
      if (!known) placements.push_back({space, ranked.plan});
    }
  }

  void search_placement(const Placement& placement) {
    if (find(placement.plan) != found_.end()) return;
    auto accept = [&](const ParallelPlan& plan) {
      return same_placement(plan, placement.plan) && runs(plan);
    };
    const PartialPlan space = pin_placement(placement.space, placement.plan);
    if (const auto ranked = fastest(step_, space, accept)) offer(*ranked);
  }

  // Returns the candidates, fastest first.
  std::vector<Candidate> take() {
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) {
      return a.predicted.total() < b.predicted.total();
    });
    return std::move(found_);
  }

 private:
  bool runs(const ParallelPlan& plan) const {
    return !runnable_ || runnable_(plan, step_.global_batch());
  }
  std::vector<Candidate>::iterator find(const ParallelPlan& plan) {
    return std::find_if(found_.begin(), found_.end(), [&](const Candidate& candidate) {
      return same_placement(candidate.at.plan, plan);
    });
  }
  // Spaces may overlap. Of two plans with the same placement, the faster one stays.
  void offer(const RankedPlan& ranked) {
    const Candidate offered = {{ranked.plan, step_.global_batch()}, ranked.estimate.breakdown};
    const auto same = find(ranked.plan);
    if (same == found_.end()) {
      found_.push_back(offered);
    } else if (offered.predicted.total() < same->predicted.total()) {
      *same = offered;
    }
  }

  StepModel step_;
  const std::function<bool(const ParallelPlan&, Int)>& runnable_;
  std::vector<Candidate> found_;
};

// The placement of a plan that is kept, with the micro-batch free and all else pinned.
Placement kept_placement(const ParallelPlan& plan) {
  Placement kept;
  kept.space.pin({kRecompute, kSp}, plan);
  kept.plan = plan;
  return kept;
}

}  // namespace

std::vector<Candidate> enumerate_candidates(const ModelSpec& model, const ClusterSpec& cluster,
                                            const CostOptions& cost,
                                            const CandidateRequest& request) {
  std::vector<Rung> rungs;
  std::vector<Placement> placements;
  for (const ParallelPlan& plan : request.keep) placements.push_back(kept_placement(plan));
  for (const Int batch : request.batches) {
    rungs.emplace_back(model, cluster, cost, request, batch);
    for (const PartialPlan& space : request.spaces) {
      rungs.back().search_layouts(space, request.layouts_per_batch, placements);
    }
  }
  std::vector<Candidate> all;
  for (Rung& rung : rungs) {
    for (const Placement& placement : placements) rung.search_placement(placement);
    for (Candidate& candidate : rung.take()) all.push_back(std::move(candidate));
  }
  return all;
}

Candidate predict_candidate(const ModelSpec& model, const ClusterSpec& cluster,
                            const CostOptions& cost, std::int64_t seq_len,
                            const Configuration& at) {
  const StepModel step(model, cluster, seq_len, at.global_batch, cost);
  return {at, step.predict(at.plan).breakdown};
}

std::vector<std::int64_t> batch_ladder(std::int64_t lowest, std::int64_t highest) {
  COPUS_CHECK(1 <= lowest && lowest <= highest);
  std::vector<Int> ladder;
  for (Int batch = lowest; batch < highest; batch *= 2) ladder.push_back(batch);
  ladder.push_back(highest);
  return ladder;
}

}  // namespace copus
