#include "copus/validate/likely_reason.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "copus/base/text.h"

namespace copus {
namespace {

// A part other than compute dominates a prediction if it has at least this share of it.
constexpr double kMuch = 0.30;
// A prediction counts as bound by kernel launches or by small kernels if the products of one layer
// take less than kSmallLayer at peak rate, and compute is priced at less than kLowUse of the peak.
constexpr Seconds kSmallLayer(0.4e-3);
constexpr double kLowUse = 0.4;
constexpr double kNearlyFull = 0.92;  // share of the GPU's memory

// Says how many nodes or GPUs a group of `ranks` consecutive ranks spans.
std::string over(const MeasuredRun& run, std::int64_t ranks) {
  const std::int64_t per_node = run.cluster.gpus_per_node;
  if (ranks > per_node) return fmt::format("over {} nodes", (ranks + per_node - 1) / per_node);
  return fmt::format("over {} GPUs", ranks);
}

struct Part {
  std::string name;
  Seconds time;
};

// Returns all parts of the step except compute.
std::vector<Part> parts_of(const MeasuredRun& run, const StepBreakdown& b) {
  const ParallelPlan& plan = run.plan;
  return {
      {fmt::format("tensor-parallel communication {}", over(run, plan.tp)), b.tp},
      {fmt::format("context-parallel communication {}", over(run, plan.tp * plan.cp)), b.cp},
      {fmt::format("expert exchange {}", over(run, plan.expert_tp() * plan.ep)), b.ep},
      {fmt::format("the pipeline's bubble ({} stages, {} micro-batches)", plan.pp * plan.vp,
                   plan.micro_batches(run.global_batch)),
       b.pipeline},
      {fmt::format("data-parallel communication {}", over(run, plan.gpus() / plan.pp)), b.dp},
      {"the optimizer", b.optimizer},
      {"the fixed cost of a step", b.overhead},
  };
}

// The time of the matrix products at peak rate, forward and backward, without recompute.
struct AtPeak {
  Seconds step;   // all products of a step, divided evenly over all GPUs
  Seconds layer;  // the products of one layer and micro-batch on one GPU
};
AtPeak at_peak(const MeasuredRun& run) {
  const double flops = 3 * run.model.forward_flops_per_token(run.seq_len);
  const double head = 3 * 2 * real(run.model.hidden) * real(run.model.vocab);
  const FlopsPerSec rate = run.cluster.gpu.peak(run.precision);
  const double tokens = real(run.plan.micro_batch * run.seq_len) / real(run.plan.tp * run.plan.cp);
  return {Flops(flops * real(run.global_batch * run.seq_len) / real(run.plan.gpus())) / rate,
          Flops((flops - head) / real(run.model.layers) * tokens) / rate};
}

std::string dominant(const MeasuredRun& run, const RunPrice& price) {
  const StepBreakdown& b = price.estimate.breakdown;
  const Seconds total = max(b.total(), Seconds(1e-12));
  const std::vector<Part> parts = parts_of(run, b);
  const Part& most = *std::max_element(
      parts.begin(), parts.end(), [](const Part& a, const Part& c) { return a.time < c.time; });
  if (most.time / total >= kMuch) {
    return fmt::format("{} is {:.0f}% of the prediction", most.name, 100 * most.time / total);
  }
  const AtPeak peak = at_peak(run);
  if (peak.layer < kSmallLayer && peak.step < kLowUse * b.compute) {
    return fmt::format("predicted launch-bound: a layer's work is {} at peak rate",
                       human_seconds(peak.layer));
  }
  return fmt::format("compute is {:.0f}% of the prediction",
                     100 * (b.compute + b.recompute) / total);
}

std::string contradiction(const Twin& twin) {
  const bool slower = twin.ratio > 1;
  return fmt::format(
      "measured {:.1f}x {} than {} of the same configuration (noise, or something that the table "
      "does not state)",
      slower ? twin.ratio : 1 / twin.ratio, slower ? "slower" : "faster", twin.run->id);
}

// Returns a text of everything that a prediction depends on. Twins have the same text.
std::string configuration(const MeasuredRun& run) {
  const ModelSpec& m = run.model;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", m.layers,
                     m.hidden, m.ffn, m.heads, m.kv_heads, m.head_dim, m.vocab, m.gated_mlp,
                     m.tied_embeddings, m.moe.experts, m.moe.experts_per_token,
                     short_name(run.plan), fmt::join(run.plan.stage_layers, "-"),
                     run.cluster.gpu.name, run.cluster.nodes, run.cluster.gpus_per_node,
                     run.cluster.network.node_bandwidth.v, to_string(run.precision), run.seq_len,
                     run.global_batch, run.framework);
}

}  // namespace

std::vector<std::optional<Twin>> find_twins(std::span<const PricedRun> runs) {
  std::map<std::string, std::vector<std::size_t>> same;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].timed()) same[configuration(*runs[i].run)].push_back(i);
  }
  std::vector<std::optional<Twin>> twins(runs.size());
  for (const auto& [key, indices] : same) {
    const auto time = [&](std::size_t i) { return *runs[i].run->step_time; };
    const auto [fast, slow] =
        std::minmax_element(indices.begin(), indices.end(),
                            [&](std::size_t a, std::size_t b) { return time(a) < time(b); });
    for (const std::size_t i : indices) {
      const double above = time(i) / time(*fast), below = time(*slow) / time(i);
      if (std::max(above, below) <= kTwinRatio) continue;
      twins[i] = above >= below ? Twin{runs[*fast].run, above} : Twin{runs[*slow].run, 1 / below};
    }
  }
  return twins;
}

std::string likely_reason(const MeasuredRun& run, const RunPrice& price,
                          const std::optional<Twin>& twin) {
  COPUS_CHECK(run.step_time.has_value());
  std::vector<std::string> clauses;
  if (twin) clauses.push_back(contradiction(*twin));
  clauses.push_back(dominant(run, price));
  const Seconds ideal = at_peak(run).step;
  clauses.push_back(fmt::format("use of peak: predicted {:.2g}%, measured {:.2g}%",
                                100 * ideal / price.step_time, 100 * ideal / *run.step_time));
  const Bytes capacity = run.cluster.gpu.memory;
  const Bytes need = run.peak_memory.value_or(price.peak_memory);
  if (need > kNearlyFull * capacity && price.step_time < *run.step_time) {
    clauses.push_back(fmt::format("{} {:.0f} of {:.0f} GiB, where allocation may stall",
                                  run.peak_memory ? "measured" : "predicted", to_gib(need),
                                  to_gib(capacity)));
  }
  if (!run.assumed.empty())
    clauses.push_back(fmt::format("assumed {}", fmt::join(run.assumed, ", ")));
  return fmt::format("{}", fmt::join(clauses, "; "));
}

}  // namespace copus
