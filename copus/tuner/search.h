// Search: every plan that the model, the cluster and the batch allow, ranked by predicted step
// time.
//
// The closed form ranks the whole space; the few that are reported are then played out with the
// timeline, so what `plan` prints is what `predict` prints. Single-threaded and deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "copus/cost/step.h"
#include "copus/spec/parallel_plan.h"
#include "copus/spec/plan_rules.h"

namespace copus {

struct SearchRequest {
  PartialPlan fixed;  // parts of the plan that the user pinned
  // Micro-batches per step and replica (steps of gradient accumulation); 0: as many as are best.
  std::int64_t micro_batches = 0;
  std::int64_t top = 10;  // how many to report
  // false: one entry per layout (tp, cp, ep, pp, dp), its best variant. true: every variant
  // competes.
  bool variants = false;
  // Called now and then with the number of plans seen so far.
  std::function<void(std::int64_t)> progress = nullptr;
};

struct RankedPlan {
  ParallelPlan plan;
  StepEstimate estimate;
};

struct SearchResult {
  std::vector<RankedPlan> plans;  // best first; only those that fit
  std::int64_t searched = 0;
  std::int64_t feasible = 0;  // fit in memory
  Seconds search_time;
  // When nothing fits: the plan that needs least memory.
  std::optional<RankedPlan> closest;
};

// REQUIRES: the pinned parts are in range (parse_plan_text checks them). An empty space is searched
// == 0.
SearchResult search(const StepModel& model, const SearchRequest& request);

// Whether the space has a plan at all, be it one that does not fit: far faster than a search.
bool has_plan(const StepModel& model, const SearchRequest& request);

// What the model's plans are for. REQUIRES: `model` outlives it.
PlanJob plan_job(const StepModel& model);

// The pinned parts over `pp` stages: a split that is pinned without vp says how many virtual stages
// there are.
ParallelPlan with_implied_stages(const PartialPlan& fixed, std::int64_t pp);

// What the usual rule picks: tensor parallelism inside the node until the model fits, then pipeline
// stages, data parallelism with the rest; micro-batch by trying; distributed optimizer and sequence
// parallelism on (Narayanan et al. 2021, arXiv 2104.04473, section 3). What the request pins stays
// pinned; how it is reported does not matter. Empty when nothing fits.
std::optional<RankedPlan> megatron_heuristic(const StepModel& model, const SearchRequest& pinned);

// One line: by how much `best` beats `next`, and through which parts of the step.
std::string explain_difference(const RankedPlan& best, const RankedPlan& next);

}  // namespace copus
