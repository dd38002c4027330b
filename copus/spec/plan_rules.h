// The rules that a plan must satisfy so that an engine can run it. ParallelPlan::validate(), the
// search and the errors about pins share these rules. The search checks a rule as soon as it knows
// the fields that the rule depends on. Checking a rule allocates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "copus/spec/engine_limits.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// The job that a plan is for.
struct PlanJob {
  const ModelSpec& model;
  const ClusterSpec& cluster;
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;
  StageCut cut = StageCut::kLayers;
  const EngineLimits* limits = nullptr;  // of the framework; null: no framework is named
};

struct PlanRule {
  PlanFields fields;  // the fields that the rule depends on; the others may have any value
  // REQUIRES, for holds() and why(): all earlier rules that depend on no other fields hold.
  bool (*holds)(const ParallelPlan& plan, const PlanJob& job) noexcept;
  // Returns an error that names the field, its value and the right values. REQUIRES: !holds().
  Error (*why)(const ParallelPlan& plan, const PlanJob& job);
};

// Returns the rules of every plan in the order in which they are checked. engine_rules() follow
// them. The first broken rule gives the most useful error.
std::span<const PlanRule> plan_rules();

// Returns the rules that can be checked once the fields `added` are known in addition to `known`,
// but not before. `limited`: whether engine_rules() are among them; without limits these hold.
std::vector<const PlanRule*> rules_of(PlanFields known, PlanFields added, bool limited = true);

// Returns the first broken rule among those that depend only on `known` fields. Null: all of these
// rules hold.
const PlanRule* broken_rule(PlanFields known, const ParallelPlan& plan,
                            const PlanJob& job) noexcept;

}  // namespace copus
