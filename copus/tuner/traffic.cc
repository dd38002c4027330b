#include "copus/tuner/traffic.h"

#include <algorithm>
#include <tuple>

#include "copus/spec/rank_grid.h"
#include "copus/tuner/expert_flows.h"

namespace copus {
namespace {

bool same_place(const Flow& a, const Flow& b) {
  return std::tie(a.source, a.destination, a.dimension) ==
         std::tie(b.source, b.destination, b.dimension);
}

// Collects the flows, one GPU after another.
class FlowBuilder {
 public:
  explicit FlowBuilder(std::vector<Flow>& flows) : flows_(flows) {}

  void send(std::int64_t source, std::int64_t destination, Dimension dimension, Bytes bytes) {
    if (source == destination || bytes.v <= 0) return;
    flows_.push_back({static_cast<std::int32_t>(source), static_cast<std::int32_t>(destination),
                      dimension, bytes});
  }

  // Sorts and merges the flows added since the last call.
  void finish_gpu() {
    const auto begin = flows_.begin() + static_cast<std::ptrdiff_t>(finished_);
    std::sort(begin, flows_.end(), [](const Flow& a, const Flow& b) {
      return std::tie(a.destination, a.dimension) < std::tie(b.destination, b.dimension);
    });
    auto out = begin;
    for (auto flow = begin; flow != flows_.end(); ++flow) {
      if (out != begin && same_place(*(out - 1), *flow)) {
        (out - 1)->bytes += flow->bytes;
      } else {
        *out++ = *flow;
      }
    }
    flows_.erase(out, flows_.end());
    finished_ = flows_.size();
  }

 private:
  std::vector<Flow>& flows_;
  std::size_t finished_ = 0;
};

// The bytes that one GPU of a pipeline stage sends in a step, over all chunks and micro-batches.
struct StageVolume {
  Bytes tp, etp, cp;
  Bytes ep_dispatch;           // the buffers of all dispatches, including what stays on the GPU
  Bytes to_next, to_previous;  // to the neighbouring stages, in a ring
  Bytes dense_replicas, expert_replicas;
};

StageVolume stage_volume(const StepModel& step, const ParallelPlan& plan, const ShapeCosts& costs,
                         std::int64_t stage) {
  StageVolume sum;
  const double micro_batches = real(plan.micro_batches(step.global_batch()));
  const std::int64_t chunks = plan.pp * plan.vp;
  for (std::int64_t chunk = stage; chunk < chunks; chunk += plan.pp) {
    const ChunkVolume v = chunk_volume(step, plan, costs, chunk);
    sum.tp += v.sum().tp * micro_batches;
    sum.etp += v.sum().etp * micro_batches;
    sum.cp += v.sum().cp * micro_batches;
    sum.ep_dispatch += v.sum().ep * micro_batches;
    if (chunk + 1 < chunks) sum.to_next += v.message * micro_batches;
    if (chunk > 0) sum.to_previous += v.message * micro_batches;
  }
  const RankParams params = step.params(plan, step.pieces_of_rank(plan, costs, stage));
  const std::int64_t replicas = plan.dp * plan.cp;
  auto in_step = [&](double count, std::int64_t ring) {
    const ReplicaVolume v = replica_volume(step, plan, count, ring);
    return v.reduce + v.gather + (v.per_forward + v.per_backward) * micro_batches;
  };
  sum.dense_replicas = in_step(params.dense, replicas);
  sum.expert_replicas = in_step(params.expert, step.model().is_moe() ? plan.expert_dp() : 1);
  return sum;
}

// Returns the next rank in the ring of `rank` along an axis.
std::int64_t next_in(const RankGrid& grid, std::int64_t rank, Axis axis) {
  const std::int64_t size = grid.group_size(axis), stride = grid.stride(axis);
  const std::int64_t index = rank / stride % size;
  return rank + ((index + 1) % size - index) * stride;
}

std::int64_t flow_estimate(const ParallelPlan& plan) { return plan.gpus() * (6 + plan.ep); }

}  // namespace

DimensionBytes Traffic::totals() const {
  DimensionBytes sums{};
  for (const Flow& flow : flows) of(sums, flow.dimension) += flow.bytes;
  return sums;
}

Bytes Traffic::total() const {
  Bytes sum;
  for (const Flow& flow : flows) sum += flow.bytes;
  return sum;
}

std::vector<double> dispatch_matrix(const std::vector<double>& shares, Bytes buffer) {
  std::vector<double> matrix;
  matrix.reserve(shares.size() * shares.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    for (double share : shares) matrix.push_back(share * buffer.v);
  }
  return matrix;
}

Result<Traffic> compute_traffic(const StepModel& step, const ParallelPlan& plan, double skew) {
  const ModelSpec& model = step.model();
  const ClusterSpec& cluster = step.cluster();
  COPUS_TRY_VOID(step.validate(plan));
  if (!(skew >= 0 && skew <= kMaxSkew)) {
    return field_error("skew", "got {}; want 0 (a balanced gate) to {}", skew, kMaxSkew);
  }
  if (flow_estimate(plan) > kMaxFlows) {
    return field_error("cluster", "{} GPUs with ep={} make about {} flows; want at most {}",
                       plan.gpus(), plan.ep, flow_estimate(plan), kMaxFlows);
  }

  const RankGrid grid(plan);
  const ShapeCosts costs = step.shape_costs(plan);
  std::vector<StageVolume> stages;
  for (std::int64_t stage = 0; stage < plan.pp; ++stage) {
    stages.push_back(stage_volume(step, plan, costs, stage));
  }
  const bool routes = model.is_moe() && plan.ep > 1;
  const std::vector<double> shares =
      routes ? expert_rank_shares(model.moe, plan.ep, skew) : std::vector<double>{};
  // First and last stage hold a copy of the tied embedding each. They add its gradients with an
  // all-reduce between two ranks.
  const Bytes tied = tied_embedding_volume(step, plan);

  Traffic traffic;
  traffic.gpus = grid.size();
  traffic.gpus_per_node = cluster.gpus_per_node;
  traffic.flows.reserve(static_cast<std::size_t>(flow_estimate(plan)));
  FlowBuilder builder(traffic.flows);
  for (std::int64_t rank = 0; rank < grid.size(); ++rank) {
    const Coordinates at = grid.coordinates_of(rank);
    const StageVolume& volume = stages[static_cast<std::size_t>(at.pp)];
    auto stage_at = [&](std::int64_t stage) {
      return grid.rank_of({at.tp, at.cp, at.dp, stage % plan.pp});
    };

    const auto next = [&](Axis axis) { return next_in(grid, rank, axis); };
    builder.send(rank, next(Axis::kTp), Dimension::kTp, volume.tp);
    builder.send(rank, next(Axis::kEtp), Dimension::kTp, volume.etp);
    builder.send(rank, next(Axis::kCp), Dimension::kCp, volume.cp);
    builder.send(rank, stage_at(at.pp + 1), Dimension::kPp, volume.to_next);
    builder.send(rank, stage_at(at.pp + plan.pp - 1), Dimension::kPp, volume.to_previous);
    if (at.pp == 0 || at.pp == plan.pp - 1) {
      builder.send(rank, stage_at(plan.pp - 1 - at.pp), Dimension::kEmbedding, tied);
    }

    builder.send(rank, next(Axis::kDpCp), Dimension::kDp, volume.dense_replicas);
    builder.send(rank, next(Axis::kEdp), Dimension::kDp, volume.expert_replicas);
    if (routes) {
      for (const ExpertFlow& flow : expert_flows(step, plan, shares, rank)) {
        builder.send(rank, flow.destination, Dimension::kEp,
                     volume.ep_dispatch * (flow.dispatch + flow.combine));
      }
    }
    builder.finish_gpu();
  }
  return traffic;
}

Traffic grouped(const Traffic& traffic, std::int64_t gpus) {
  Traffic groups;
  groups.gpus = (traffic.gpus + gpus - 1) / gpus;
  std::vector<Flow> flows = traffic.flows;
  for (Flow& flow : flows) {
    flow.source /= static_cast<std::int32_t>(gpus);
    flow.destination /= static_cast<std::int32_t>(gpus);
  }
  std::sort(flows.begin(), flows.end(), [](const Flow& a, const Flow& b) {
    return std::tie(a.source, a.destination, a.dimension) <
           std::tie(b.source, b.destination, b.dimension);
  });
  for (const Flow& flow : flows) {
    if (!groups.flows.empty() && same_place(groups.flows.back(), flow)) {
      groups.flows.back().bytes += flow.bytes;
    } else {
      groups.flows.push_back(flow);
    }
  }
  return groups;
}

LinkLoads link_loads(const Traffic& traffic, const ClusterSpec& cluster) {
  const auto gpus = static_cast<std::size_t>(traffic.gpus);
  const auto per_node = static_cast<std::size_t>(traffic.gpus_per_node);
  const std::size_t nodes = (gpus + per_node - 1) / per_node;
  std::vector<Bytes> gpu_out(gpus), gpu_in(gpus), node_out(nodes), node_in(nodes);
  for (const Flow& flow : traffic.flows) {
    const auto from = static_cast<std::size_t>(flow.source);
    const auto to = static_cast<std::size_t>(flow.destination);
    const bool inside = from / per_node == to / per_node;
    (inside ? gpu_out[from] : node_out[from / per_node]) += flow.bytes;
    (inside ? gpu_in[to] : node_in[to / per_node]) += flow.bytes;
  }
  auto summarise = [](const std::vector<Bytes>& loads, BytesPerSec rate) {
    LinkLoad load;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      load.mean += loads[i] / static_cast<double>(loads.size());
      // The tolerance makes worst_at the first of several equal loads, despite rounding.
      if (loads[i] > load.worst * (1 + 1e-9)) {
        load.worst = loads[i];
        load.worst_at = static_cast<std::int64_t>(i);
      }
    }
    if (rate.v > 0) load.time = load.worst / rate;
    return load;
  };
  const BytesPerSec link = cluster.gpu.link_bandwidth;
  const BytesPerSec network = cluster.network.node_bandwidth;
  return {summarise(gpu_out, link), summarise(gpu_in, link), summarise(node_out, network),
          summarise(node_in, network)};
}

}  // namespace copus
