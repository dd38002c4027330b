#include "copus/goodput/configuration.h"

#include <algorithm>
#include <functional>

namespace copus {
namespace {

// Equal stages may be written out or left empty.
bool equal_stages(const ParallelPlan& plan) {
  const auto& layers = plan.stage_layers;
  return std::adjacent_find(layers.begin(), layers.end(), std::not_equal_to<>()) == layers.end();
}

// What is sharded over one rank is not sharded.
int sharding(const ParallelPlan& plan) { return plan.dp * plan.cp > 1 ? plan.zero : 0; }

}  // namespace

bool same_placement(const ParallelPlan& a, const ParallelPlan& b) {
  return a.tp == b.tp && a.cp == b.cp && a.pp == b.pp && a.vp == b.vp && a.dp == b.dp &&
         a.ep == b.ep && sharding(a) == sharding(b) &&
         (a.stage_layers == b.stage_layers || (equal_stages(a) && equal_stages(b)));
}

std::string to_text(const Configuration& at) {
  return fmt::format("{} at batch {}", short_name(at.plan), at.global_batch);
}

}  // namespace copus
