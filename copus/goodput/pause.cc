#include "copus/goodput/pause.h"

#include <algorithm>

namespace copus {

double predict_pause_s(const ModelSpec& model, const ClusterSpec& cluster, const StateBytes& state,
                       const Configuration& from, const Configuration& to) {
  constexpr double kGroups_s = 0.1;
  if (same_placement(from.plan, to.plan)) return 0;
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  const ParallelPlan& a = from.plan;
  const ParallelPlan& b = to.plan;
  const double parameters = static_cast<double>(model.total_params()) / ratio(b.tp * b.pp, 1);
  const double owned = b.zero >= 1 ? 1 / ratio(b.dp, 1) : 1;
  const double held = std::min(1.0, ratio(b.tp, a.tp)) * std::min(1.0, ratio(b.pp, a.pp));
  // Of sharded optimizer state only a part is where its weights are.
  const double owned_before = a.zero >= 1 ? 1 / ratio(a.dp, 1) : 1;
  const double received =
      parameters * (state.value * (1 - held) + state.optimizer * owned * (1 - held * owned_before));
  const double kept = parameters * (state.value + state.optimizer * owned);
  const double link = cluster.nodes > 1
                          ? cluster.network.node_bandwidth.v * cluster.network.efficiency /
                                static_cast<double>(cluster.gpus_per_node)
                          : cluster.gpu.link_bandwidth.v * cluster.gpu.link_efficiency;
  return kGroups_s + received / link +
         2 * kept / (cluster.gpu.memory_bandwidth.v * cluster.gpu.efficiency.memory);
}

}  // namespace copus
