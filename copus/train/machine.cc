#include "copus/train/machine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "copus/spec/catalog.h"
#include "copus/train/device.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The mean of as many calls as fit into `seconds`, after one to warm up.
template <typename F>
double mean_s(double seconds, const F& f) {
  f();
  const auto begin = Clock::now();
  int calls = 0;
  do {
    f();
    ++calls;
  } while (since(begin) < seconds);
  return since(begin) / calls;
}

struct Rates {
  double flops, bytes_per_s, operator_s;
};

// Of this rank, while the others do the same.
Rates measure_rank() {
  constexpr double kSeconds = 0.08;
  constexpr std::int64_t n = 256, kElements = 1 << 22;
  Rates rates{};
  const Tensor a = at::ones({n, n}), b = at::ones({n, n});
  Tensor c = at::empty({n, n});
  rates.flops = 2.0 * n * n * n / mean_s(kSeconds, [&] { at::mm_out(c, a, b); });
  const Tensor large = at::ones({kElements});
  Tensor sum = at::empty({kElements});
  rates.bytes_per_s = 3.0 * 4 * kElements / mean_s(kSeconds, [&] { at::add_out(sum, large, large); });
  const Tensor tiny = at::ones({8});
  Tensor tiny_sum = at::empty({8});
  constexpr int kCalls = 1000;
  rates.operator_s = mean_s(kSeconds / 2, [&] {
                       for (int i = 0; i < kCalls; ++i) at::add_out(tiny_sum, tiny, tiny);
                     }) /
                     kCalls;
  return rates;
}

Bytes memory_of_machine() {
  return Bytes(static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
               static_cast<double>(sysconf(_SC_PAGE_SIZE)));
}

ClusterSpec measure_cpus(const Comm& world, int ranks_per_node) {
  const int ranks = world.size();
  world.barrier();
  const Rates mine = measure_rank();
  const Tensor means = at::tensor({mine.flops, mine.bytes_per_s, mine.operator_s}, at::kDouble);
  world.all_reduce(means);
  means.div_(ranks);

  ClusterSpec cluster;
  cluster.name = "this machine";
  cluster.nodes = ranks / ranks_per_node;
  cluster.gpus_per_node = ranks_per_node;
  GpuSpec& core = cluster.gpu;
  core.name = "CPU rank";
  core.gpus_per_node = ranks_per_node;
  core.memory = memory_of_machine() / static_cast<double>(ranks_per_node);
  core.peak_fp32 = core.peak_bf16 = core.peak_fp16 = FlopsPerSec(means[0].item<double>());
  core.memory_bandwidth = BytesPerSec(means[1].item<double>());
  core.efficiency.matmul = core.efficiency.memory = 1;
  core.efficiency.matmul_half_m = core.efficiency.matmul_half_n = core.efficiency.matmul_half_k = 8;
  core.efficiency.launch = Seconds(means[2].item<double>());
  core.link_topology = LinkTopology::kSwitch;
  core.link_efficiency = 1;
  core.link_latency = Seconds(0);
  if (ranks > 1) {
    constexpr std::int64_t kLarge = 1 << 20;
    const Tensor little = at::ones({16}), much = at::ones({kLarge});
    const auto mean = [&](int calls, const Tensor& x) {
      world.all_reduce(x);
      const auto begin = Clock::now();
      for (int i = 0; i < calls; ++i) world.all_reduce(x);
      return since(begin) / calls;
    };
    const Tensor times = at::tensor({mean(50, little), mean(8, much)}, at::kDouble);
    world.broadcast(times, 0);
    const double small_s = times[0].item<double>(), large_s = times[1].item<double>();
    // A ring passes each byte on twice, less the parts that start and end in place.
    const double passed = 2.0 * (ranks - 1) / ranks * 4 * kLarge;
    core.link_base_latency = Seconds(small_s);
    core.link_bandwidth = BytesPerSec(passed / std::max(1e-6, large_s - small_s));
  } else {
    core.link_bandwidth = core.memory_bandwidth;
  }
  cluster.network.node_bandwidth = core.link_bandwidth;
  return cluster;
}

}  // namespace

Result<ClusterSpec> this_cluster(const Comm& world, at::Device device, int ranks_per_node) {
  if (device.is_cpu()) {
    ClusterSpec cluster = measure_cpus(world, ranks_per_node);
    COPUS_TRY_VOID(cluster.validate());
    return cluster;
  }
  const std::optional<GpuSpec> gpu = catalog_entry_of(gpu_name(device.index()));
  if (!gpu) {
    return make_error("--cluster: missing; the catalog does not know this GPU ({})",
                      gpu_name(device.index()));
  }
  return cluster_of(*gpu, world.size() / ranks_per_node, ranks_per_node);
}

CostOptions engine_cost_options(at::Device device, Precision precision) {
  CostOptions cost;
  cost.precision = precision;
  cost.grad_bytes = 4;
  cost.grad_overlap = GradOverlap::kLastBackward;
  // The FP32 weights are their own master.
  if (precision == Precision::kFp32) cost.optimizer_bytes = 8;
  if (device.is_cpu()) {
    // Operators are measured as they are called, and who moves bytes takes a core to do it.
    cost.host_layer_forward = cost.host_layer_backward = Seconds(0);
    cost.hop_overhead = cost.tp_skew = cost.step_overhead = Seconds(0);
    cost.grad_overlap = GradOverlap::kNone;
    cost.fixed_memory = gib(0.25);
  }
  return cost;
}

}  // namespace copus
