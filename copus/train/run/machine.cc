#include "copus/train/run/machine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "copus/base/seconds_since.h"
#include "copus/cost/step.h"
#include "copus/spec/catalog.h"
#include "copus/train/device/device.h"
#include "copus/train/device/matmul_rate.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the mean time of a call of f(): calls it once to warm up, then until `within` has passed.
template <typename F>
Seconds mean_time(Seconds within, const F& f) {
  f();
  const auto begin = Clock::now();
  int calls = 0;
  do {
    f();
    ++calls;
  } while (seconds_since(begin) < within);
  return seconds_since(begin) / calls;
}

constexpr Seconds kMeasured(0.15);  // how long each measurement takes

// Returns the rate at which memory is read and written when two arrays are added that do not fit in
// a cache.
BytesPerSec measure_memory() {
  constexpr std::int64_t kElements = 1 << 22;
  const Tensor large = at::ones({kElements});
  Tensor sum = at::empty({kElements});
  return Bytes(3.0 * 4 * kElements) / mean_time(kMeasured, [&] { at::add_out(sum, large, large); });
}

FlopsPerSec measure_products() {
  return matmul_rate(256, [](const auto& product) { return mean_time(kMeasured, product); });
}

// Measures one layer of the model, forward and backward, on this rank.
class LayerTimer {
 public:
  explicit LayerTimer(const LayoutOptions& run) : model_(run.model), dtype_(compute_dtype(run)) {
    model_.layers = 2;  // the measured chunk is one of them, without embedding and head
    const ChunkSpec chunk{.index = 1, .first_layer = 1, .layers = 1};
    parameters_ = std::make_unique<ChunkParameters>(
        model_, chunk, mesh_, BucketOptions{.dtype = dtype_, .start = ParameterStart::kInitial});
    layer_ = std::make_unique<ModelChunk>(model_, chunk, parameters_->values(), partition_,
                                          Recompute::kNone, run.seq_len);
  }
  Seconds time(std::int64_t rows, std::int64_t seq_len) const {
    return mean_time(2 * kMeasured, [&] {
      const Tensor x =
          at::full({rows, seq_len, model_.hidden}, 0.1, at::TensorOptions(dtype_)).requires_grad_();
      const Tensor y = layer_->forward(x);
      torch::autograd::backward({y}, {at::full_like(y, 1e-3)});
    });
  }

 private:
  ModelSpec model_;
  at::ScalarType dtype_;
  Mesh mesh_;
  Partition partition_;
  std::unique_ptr<ChunkParameters> parameters_;
  std::unique_ptr<ModelChunk> layer_;
};

ClusterSpec measure_cpus(const Comm& world, const LayoutOptions& run) {
  const int ranks = world.size(), ranks_per_node = run.ranks_per_node;
  const std::int64_t seq_len = std::min<std::int64_t>(run.seq_len, 256);
  const std::int64_t rows[2] = {1, 4};
  const LayerTimer layer(run);
  world.barrier();
  const Tensor means = at::tensor({measure_products().v, measure_memory().v,
                                   layer.time(rows[0], seq_len).v, layer.time(rows[1], seq_len).v},
                                  at::kDouble);
  world.all_reduce(means);
  means.div_(ranks);
  const double* mean = means.data_ptr<double>();

  ClusterSpec cluster = ranks_as_cluster(ranks, ranks_per_node);
  cluster.name = "this machine";
  GpuSpec& core = cluster.gpu;
  core.name = kMeasuredRank;
  core.gpus_per_node = ranks_per_node;
  core.memory = host_memory() / static_cast<double>(ranks_per_node);
  core.peak_fp32 = core.peak_bf16 = core.peak_fp16 = FlopsPerSec(mean[0]);
  core.memory_bandwidth = BytesPerSec(mean[1]);
  core.efficiency.matmul = core.efficiency.memory = 1;
  core.efficiency.matmul_half_m = core.efficiency.matmul_half_n = core.efficiency.matmul_half_k = 8;
  // With this topology a group of any size has the measured rate.
  core.link_topology = LinkTopology::kPcie;
  core.link_efficiency = 1;
  core.link_latency = Seconds(0);
  if (ranks > 1) {
    constexpr std::int64_t kLarge = 1 << 20;
    const Tensor little = at::ones({16}), much = at::ones({kLarge});
    const auto mean_reduction = [&](int calls, const Tensor& x) {
      world.all_reduce(x);
      const auto begin = Clock::now();
      for (int i = 0; i < calls; ++i) world.all_reduce(x);
      return (seconds_since(begin) / calls).v;
    };
    const Tensor times =
        at::tensor({mean_reduction(50, little), mean_reduction(8, much)}, at::kDouble);
    world.broadcast(times, 0);
    const Seconds small(times[0].item<double>()), large(times[1].item<double>());
    // In a ring all-reduce each rank sends each byte twice, except the parts that are in place.
    const Bytes passed(2.0 * (ranks - 1) / ranks * 4 * kLarge);
    core.link_base_latency = small;
    core.link_bandwidth = passed / max(microseconds(1), large - small);
  } else {
    core.link_bandwidth = core.memory_bandwidth;
  }
  // The measured all-reduce over all ranks has used the network, if there is one.
  cluster.network.node_bandwidth = core.link_bandwidth;
  cluster.network.efficiency = 1;
  cluster.network.latency = cluster.network.base_latency = Seconds(0);
  calibrate(cluster, run, seq_len, {Seconds(mean[2]), Seconds(mean[3])}, rows);
  return cluster;
}

}  // namespace

Seconds predicted_layer(const ClusterSpec& cluster, const LayoutOptions& run, std::int64_t rows,
                        std::int64_t seq_len) {
  const StepModel model(run.model, cluster, seq_len, rows,
                        engine_cost_options(run.device.is_cpu(), run.precision()));
  ParallelPlan plan;
  plan.micro_batch = rows;
  const PieceCost cost = model.shape_costs(plan).time.dense;
  return cost.forward.compute + cost.backward_input.compute + cost.backward_weight.compute;
}

void calibrate(ClusterSpec& cluster, const LayoutOptions& run, std::int64_t seq_len,
               const Seconds (&measured)[2], const std::int64_t (&rows)[2]) {
  GpuSpec& core = cluster.gpu;
  core.efficiency.launch = Seconds(0);
  const Seconds small = predicted_layer(cluster, run, rows[0], seq_len);
  const Seconds large = predicted_layer(cluster, run, rows[1], seq_len);
  core.efficiency.launch = Seconds(1);
  const Seconds operators = predicted_layer(cluster, run, rows[0], seq_len) - small;
  const Seconds growth = max(measured[1] - measured[0], 0.2 * measured[1]);
  const double slowness = growth / (large - small);
  core.peak_fp32 = core.peak_fp32 / slowness;
  core.peak_bf16 = core.peak_fp16 = core.peak_fp32;
  core.memory_bandwidth = core.memory_bandwidth / slowness;
  core.efficiency.launch = max(Seconds(0), measured[0] - slowness * small) / operators.v;
}

Bytes host_memory() {
  return Bytes(static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
               static_cast<double>(sysconf(_SC_PAGE_SIZE)));
}

Result<ClusterSpec> this_cluster(const Comm& world, const LayoutOptions& run) {
  if (run.device.is_cpu()) {
    ClusterSpec cluster = measure_cpus(world, run);
    COPUS_TRY_VOID(cluster.validate());
    return cluster;
  }
  const std::string name = gpu_name(run.device.index);
  const std::optional<GpuSpec> gpu = catalog_entry_of(name);
  if (!gpu) {
    return field_error("--cluster", "missing; the catalog does not know this GPU ({})", name);
  }
  return cluster_of(*gpu, world.size() / run.ranks_per_node, run.ranks_per_node);
}

}  // namespace copus
