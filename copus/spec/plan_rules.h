// What makes a plan one that an engine can run: each rule once, for ParallelPlan::validate(), for
// the search, which asks a rule as soon as it knows the fields that the rule looks at, and for
// errors about pins. Asking allocates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "copus/spec/parallel_plan.h"

namespace copus {

// What a plan is for.
struct PlanJob {
  const ModelSpec& model;
  const ClusterSpec& cluster;
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;
  StageCut cut = StageCut::kLayers;
};

struct PlanRule {
  PlanFields fields;  // all that it looks at; the others may have any value
  // REQUIRES of both: the rules before it hold that look at no other fields.
  bool (*holds)(const ParallelPlan& plan, const PlanJob& job) noexcept;
  // Names the field, its value and what would be right. REQUIRES: it does not hold.
  Error (*why)(const ParallelPlan& plan, const PlanJob& job);
};

// In the order in which they are checked: the first that is broken tells most.
std::span<const PlanRule> plan_rules();

// Those that can be asked once `added` are known beside `known`, and not before.
std::vector<const PlanRule*> rules_of(PlanFields known, PlanFields added);

// The first of those that look at no other fields; null: all of them hold.
const PlanRule* broken_rule(PlanFields known, const ParallelPlan& plan,
                            const PlanJob& job) noexcept;

}  // namespace copus
