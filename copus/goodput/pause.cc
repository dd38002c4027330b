#include "copus/goodput/pause.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace copus {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// Which layers a pipeline rank holds.
std::vector<bool> layers_of(const ParallelPlan& plan, std::int64_t rank, const ModelSpec& model) {
  std::vector<bool> held(static_cast<std::size_t>(model.layers), false);
  std::int64_t at = 0;
  for (std::int64_t chunk = 0; chunk < plan.pp * plan.vp; ++chunk) {
    const std::int64_t count = plan.chunk_layers(chunk, model);
    if (chunk % plan.pp == rank) {
      const auto first = held.begin() + static_cast<std::ptrdiff_t>(at);
      std::fill(first, first + static_cast<std::ptrdiff_t>(count), true);
    }
    at += count;
  }
  return held;
}

// Of a GPU's new slice of every matrix, the smallest share that lies in its old slice. Neighbouring
// ranks in tp hold neighbouring slices (RankGrid).
double slice_held(std::int64_t before, std::int64_t after) {
  double least = 1;
  for (std::int64_t gpu = 0; gpu < std::lcm(before, after); ++gpu) {
    const std::int64_t had = gpu % before, has = gpu % after;
    const double from = std::max(share(had, before), share(has, after));
    const double to = std::min(share(had + 1, before), share(has + 1, after));
    least = std::min(least, std::max(0.0, to - from) * static_cast<double>(after));
  }
  return least;
}

struct Layers {
  std::int64_t kept = 0;  // in both stages
  std::int64_t here = 0;  // of these, on a GPU that already holds them
};

// Every pair of a new and an old stage that share GPUs. pp is the slowest axis, so stages are
// consecutive blocks of GPUs.
std::vector<Layers> stages(const ParallelPlan& a, const ParallelPlan& b, const ModelSpec& model) {
  std::vector<Layers> all;
  for (std::int64_t after = 0; after < b.pp; ++after) {
    const std::vector<bool> has = layers_of(b, after, model);
    const std::int64_t first = after * a.pp / b.pp, last = ((after + 1) * a.pp - 1) / b.pp;
    for (std::int64_t before = first; before <= last; ++before) {
      const std::vector<bool> had = layers_of(a, before, model);
      Layers stage;
      for (std::size_t layer = 0; layer < has.size(); ++layer) {
        stage.kept += has[layer] ? 1 : 0;
        stage.here += has[layer] && had[layer] ? 1 : 0;
      }
      all.push_back(stage);
    }
  }
  return all;
}

}  // namespace

Seconds predict_pause(const ModelSpec& model, const ClusterSpec& cluster, const StateBytes& state,
                      const Configuration& from, const Configuration& to) {
  constexpr Seconds kGroups(0.1);
  if (same_placement(from.plan, to.plan)) return {};
  const ParallelPlan& a = from.plan;
  const ParallelPlan& b = to.plan;
  const double experts = static_cast<double>(model.moe_layers() * model.moe.experts) *
                         static_cast<double>(model.expert_params());
  const double dense = static_cast<double>(model.total_params()) - experts;
  const double slice = slice_held(a.tp, b.tp);
  // With sharded optimizer state, a GPU holds only a part of the state of its weights.
  const auto owned = [](const ParallelPlan& plan, std::int64_t replicas) {
    return plan.zero >= 1 ? share(1, replicas) : 1.0;
  };
  const auto expert_cuts = [](const ParallelPlan& plan) { return plan.ep * plan.expert_tp(); };
  const std::int64_t from_dp = a.dp * a.cp, to_dp = b.dp * b.cp;
  Bytes received, kept;  // of the rank that receives most
  for (const Layers& stage : stages(a, b, model)) {
    const double held = stage.kept > 0 ? share(stage.here, stage.kept) * slice : 1;
    Bytes receives, keeps;
    const auto add = [&](double parameters, double held_share, double own, double own_before) {
      receives += Bytes(parameters * (state.value * (1 - held_share) +
                                      state.optimizer * own * (1 - held_share * own_before)));
      keeps += Bytes(parameters * (state.value + state.optimizer * own));
    };
    const double layers = share(stage.kept, model.layers);
    add(dense * layers / static_cast<double>(b.tp), held, owned(b, to_dp), owned(a, from_dp));
    if (experts > 0) {
      const double expert_held = share(stage.here, std::max<std::int64_t>(1, stage.kept)) *
                                 slice_held(a.expert_tp(), b.expert_tp()) *
                                 std::min(1.0, share(b.ep, a.ep));
      add(experts * layers / static_cast<double>(expert_cuts(b)), stage.kept > 0 ? expert_held : 1,
          owned(b, b.expert_dp()), owned(a, a.expert_dp()));
    }
    if (receives >= received) {
      received = receives;
      kept = keeps;
    }
  }
  const BytesPerSec link = cluster.nodes > 1
                               ? cluster.network.node_bandwidth * cluster.network.efficiency /
                                     static_cast<double>(cluster.gpus_per_node)
                               : cluster.gpu.link_bandwidth * cluster.gpu.link_efficiency;
  return kGroups + received / link +
         2 * kept / (cluster.gpu.memory_bandwidth * cluster.gpu.efficiency.memory);
}

}  // namespace copus
