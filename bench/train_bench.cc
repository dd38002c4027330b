// Measures the parts of a training step on this machine at several layouts, and compares the step
// with the cost model's prediction. The prediction uses a few measurements of the machine: matrix
// products, memory, messages. Ranks are threads over Gloo, with one thread of computation each.
//
// Everything is measured in the same run. A figure is comparable only with others of its table.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "copus/base/median.h"
#include "copus/base/text.h"
#include "copus/cost/step.h"
#include "copus/spec/hf_config.h"
#include "copus/train/comm/rank_threads.h"
#include "copus/train/device/matmul_rate.h"
#include "copus/train/engine/trainer.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the time of the shortest of `repeats` calls.
double best_s(int repeats, const std::function<void()>& f) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

// Measures one thread's rates, and the cost of a message between two ranks.
ClusterSpec measure_machine(int ranks) {
  at::set_num_threads(1);
  ClusterSpec cluster;
  cluster.name = "this machine";
  cluster.nodes = 1;
  cluster.gpus_per_node = ranks;
  GpuSpec& core = cluster.gpu;
  core.name = "one thread";
  core.gpus_per_node = ranks;
  core.memory = gib(8);

  core.peak_fp32 =
      matmul_rate(512, [](const auto& product) { return Seconds(best_s(20, product)); });
  core.efficiency.matmul = 1;
  const Tensor large = at::ones({1 << 24});
  Tensor sum = at::empty({1 << 24});
  core.memory_bandwidth =
      BytesPerSec(3.0 * 4 * (1 << 24) / best_s(5, [&] { at::add_out(sum, large, large); }));
  core.efficiency.memory = 1;
  // The width at which a product has half its rate.
  core.efficiency.matmul_half_m = core.efficiency.matmul_half_n = core.efficiency.matmul_half_k = 8;
  const Tensor tiny = at::ones({8});
  Tensor tiny_sum = at::empty({8});
  core.efficiency.launch = Seconds(best_s(5,
                                          [&] {
                                            for (int i = 0; i < 1000; ++i) {
                                              at::add_out(tiny_sum, tiny, tiny);
                                            }
                                          }) /
                                   1000);

  double small_s = 0, large_s = 0;
  constexpr std::int64_t kLarge = 1 << 20;
  run_ranks(2, [&](int rank, GroupCache& groups) {
    const Comm& pair = **groups.group("world", {0, 1});
    Tensor little = at::ones({16}), much = at::ones({kLarge});
    const auto mean = [&](int n, Tensor& x) {
      const auto begin = Clock::now();
      for (int i = 0; i < n; ++i) pair.all_reduce(x);
      return std::chrono::duration<double>(Clock::now() - begin).count() / n;
    };
    mean(10, little);
    const double s = mean(200, little), l = mean(10, much);
    if (rank == 0) {
      small_s = s;
      large_s = l;
    }
  });
  // A ring of two moves the tensor's bytes once in each direction.
  core.link_topology = LinkTopology::kPcie;
  core.link_bandwidth = BytesPerSec(4.0 * kLarge / std::max(1e-6, large_s - small_s));
  core.link_efficiency = 1;
  core.link_latency = Seconds(0);
  core.link_base_latency = Seconds(small_s);
  fmt::print(
      "one thread: {:.0f} GFLOP/s in FP32 products, {:.1f} GB/s of memory, {:.1f} us an operator; "
      "two "
      "ranks: {:.0f} us a message, {:.2f} GB/s\n\n",
      core.peak_fp32.v / 1e9, core.memory_bandwidth.v / 1e9, core.efficiency.launch.v * 1e6,
      small_s * 1e6, core.link_bandwidth.v / 1e9);
  return cluster;
}

struct Measured {
  double step_s = 0, tp_s = 0, pp_s = 0, dp_s = 0, optimizer_s = 0;
};

// Returns the mean over ranks of each rank's medians.
Measured measure(const TrainerOptions& options) {
  constexpr int kSteps = 7;
  Measured result;
  std::mutex mutex;
  const auto ranks = static_cast<double>(options.plan.gpus());
  run_ranks(static_cast<int>(options.plan.gpus()), [&](int, GroupCache& groups) {
    const Result<Dataset> data =
        Dataset::open({"builtin"}, {.seq_len = options.seq_len, .vocab = options.model.vocab});
    const Result<std::unique_ptr<Trainer>> trainer = Trainer::create(groups, options);
    if (!data || !trainer) throw std::runtime_error("cannot start");
    std::vector<double> step, tp, pp, dp, optimizer;
    for (int i = 0; i < kSteps + 2; ++i) {
      const Result<StepResult> done = (*trainer)->step(*data, i * options.global_batch);
      if (!done) throw std::runtime_error(done.error().message);
      if (i < 2) continue;
      step.push_back(done->total.v);
      tp.push_back(done->tp_wait.v);
      pp.push_back(done->pp_wait.v);
      dp.push_back(done->dp_wait.v);
      optimizer.push_back(done->optimizer.v);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    result.step_s += median(step) / ranks;
    result.tp_s += median(tp) / ranks;
    result.pp_s += median(pp) / ranks;
    result.dp_s += median(dp) / ranks;
    result.optimizer_s += median(optimizer) / ranks;
  });
  return result;
}

int run() {
  Result<ModelSpec> model = load_model("tiny");
  if (!model) return 1;
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  constexpr std::int64_t kSeqLen = 256, kBatch = 16;
  fmt::print("{} ({} parameters), batch {} x {} tokens, FP32, {} cores\n", model->name,
             human_count(static_cast<double>(model->total_params())), kBatch, kSeqLen, cores);
  const ClusterSpec machine = measure_machine(2);
  std::vector<std::vector<std::string>> rows;
  for (const char* text : {"dp=1,micro_batch=4", "dp=2,micro_batch=4", "dp=2,micro_batch=4,zero=1",
                           "tp=2,micro_batch=4", "tp=2,micro_batch=4,sp=1", "pp=2,micro_batch=2",
                           "pp=2,vp=2,micro_batch=2", "dp=1,micro_batch=4,recompute=full"}) {
    const Result<PartialPlan> plan = parse_plan_text(text, "plan");
    TrainerOptions options;
    options.model = *model;
    options.plan = plan->plan;
    options.seq_len = kSeqLen;
    options.global_batch = kBatch;
    const Measured m = measure(options);
    ClusterSpec cluster = machine;
    cluster.gpus_per_node = static_cast<std::int64_t>(options.plan.gpus());
    CostOptions cost;
    cost.precision = Precision::kFp32;
    // The host issues no kernels to a device: the launch time above has an operator's cost.
    cost.host_layer_forward = cost.host_layer_backward = Seconds(0);
    cost.hop_overhead = cost.tp_skew = cost.step_overhead = Seconds(0);
    const StepModel predictor(*model, cluster, kSeqLen, kBatch, cost);
    const double predicted = predictor.predict(options.plan).time.v;
    const auto share = [&](double s) { return fmt::format("{:.1f}%", 100 * s / m.step_s); };
    rows.push_back({short_name(options.plan), human_seconds(m.step_s), share(m.tp_s), share(m.pp_s),
                    share(m.dp_s), share(m.optimizer_s), human_seconds(predicted),
                    fmt::format("{:.2f}", predicted / m.step_s)});
  }
  fmt::print("{}\n", format_table({"layout", "step", "in tp", "in pp (bubble)", "in dp",
                                   "optimizer", "predicted", "predicted/step"},
                                  rows));
  return 0;
}

}  // namespace
}  // namespace copus

int main() { return copus::run(); }
