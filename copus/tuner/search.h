// Search: ranks every plan that the model, the cluster and the batch allow by its predicted step
// time.
//
// The closed form ranks the whole space. The few plans that are reported are then simulated with
// the timeline, so `plan` and `predict` print the same times. Single-threaded and deterministic.
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
  // Micro-batches per step and replica (steps of gradient accumulation); 0: not pinned.
  std::int64_t micro_batches = 0;
  std::int64_t top = 10;  // how many to report
  // false: one entry per layout (tp, cp, ep, etp, pp, dp), its best variant. true: every variant is
  // an entry.
  bool variants = false;
  // Called from time to time with the number of plans searched so far.
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
  // If nothing fits: the plan that needs the least memory.
  std::optional<RankedPlan> closest;
};

// REQUIRES: the pinned parts are in range (parse_plan_text checks them). For an empty space
// `searched` is 0.
SearchResult search(const StepModel& model, const SearchRequest& request);

// Whether the space has any plan, including plans that do not fit. Far faster than a search.
bool has_plan(const StepModel& model, const SearchRequest& request);

// Returns the job that the model's plans are for. REQUIRES: `model` outlives the result.
PlanJob plan_job(const StepModel& model);

// Returns the pinned parts as a plan with `pp` stages. A split that is pinned without vp implies
// the number of virtual stages.
ParallelPlan with_implied_stages(const PartialPlan& fixed, std::int64_t pp);

// Says in one line by how much `best` is faster than `next`, and in which parts of the step.
std::string explain_difference(const RankedPlan& best, const RankedPlan& next);

}  // namespace copus
