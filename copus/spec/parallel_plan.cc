#include "copus/spec/parallel_plan.h"

#include "copus/base/check.h"
#include "copus/spec/plan_rules.h"

namespace copus {

std::int64_t ParallelPlan::chunk_layers(std::int64_t index, const ModelSpec& model) const {
  COPUS_CHECK(index >= 0 && index < pp * vp);
  if (stage_layers.empty()) return model.layers / (pp * vp);
  COPUS_CHECK(index < static_cast<std::int64_t>(stage_layers.size()));
  return stage_layers[static_cast<std::size_t>(index)];
}

Result<void> ParallelPlan::validate(const ModelSpec& model, const ClusterSpec& cluster,
                                    std::int64_t seq_len, std::int64_t global_batch, StageCut cut,
                                    const EngineLimits* limits) const {
  const PlanJob job{model, cluster, seq_len, global_batch, cut, limits};
  const PlanRule* broken = broken_rule(PlanFields::all(), *this, job);
  if (broken != nullptr) return broken->why(*this, job);
  return {};
}

}  // namespace copus
