#include "copus/goodput/configuration.h"

#include <limits>

#include "copus/base/text.h"
#include "copus/spec/plan_fields.h"

namespace copus {
namespace {

constexpr std::string_view kAtBatch = " at batch ";

// With one data-parallel rank, ZeRO shards nothing.
int sharding(const ParallelPlan& plan) { return plan.dp * plan.cp > 1 ? plan.zero : 0; }

}  // namespace

bool same_placement(const ParallelPlan& a, const ParallelPlan& b) {
  return a.tp == b.tp && a.cp == b.cp && a.pp == b.pp && a.vp == b.vp && a.dp == b.dp &&
         a.ep == b.ep && a.expert_tp() == b.expert_tp() && sharding(a) == sharding(b) &&
         same_value(PlanField::kStageLayers, a, b);
}

std::string to_text(const Configuration& at) {
  return fmt::format("{}{}{}", short_name(at.plan), kAtBatch, at.global_batch);
}

Result<Configuration> parse_configuration(std::string_view text) {
  const std::size_t at = text.find(kAtBatch);
  if (at == std::string_view::npos) {
    return field_error("configuration", "got {:?}; want dp2.tp1.pp2.mb4 at batch 32",
                       text.substr(0, 80));
  }
  COPUS_TRY(const PartialPlan plan, parse_plan_text(text.substr(0, at), "configuration"));
  COPUS_TRY(const std::int64_t batch,
            parse_integer(text.substr(at + kAtBatch.size()), "configuration: batch", 0,
                          std::numeric_limits<std::int64_t>::max()));
  return Configuration{plan.plan, batch};
}

}  // namespace copus
