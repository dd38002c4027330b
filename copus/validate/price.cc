#include "copus/validate/price.h"

namespace copus {
namespace {

// Whether the run is of GPT's shape on a GPU older than Hopper. Such published runs are from the
// time before their frameworks had fused attention.
bool is_early_gpt(const MeasuredRun& run) {
  return !run.model.gated_mlp && run.model.kv_heads == run.model.heads && run.plan.cp == 1 &&
         run.cluster.gpu.peak_fp8.v <= 0;
}

}  // namespace

ClusterSpec cluster_of_run(const MeasuredRun& run, const FrameworkProfile& profile) {
  if (profile.network.is_null() || run.cluster.nodes < 2) return run.cluster;
  const Result<ClusterSpec> known =
      apply_cluster_json(run.cluster, profile.network, profile.name + ": network");
  COPUS_CHECK(known.has_value());  // the reader of the profile has checked it
  return *known;
}

std::optional<RunPrice> price(const MeasuredRun& run, const FrameworkProfile& profile) {
  if (!run.problem.empty()) return std::nullopt;
  return price(run, cluster_of_run(run, profile), profile);
}

std::optional<RunPrice> price(const MeasuredRun& run, const ClusterSpec& cluster,
                              const FrameworkProfile& profile, std::int64_t max_actions) {
  if (!run.problem.empty()) return std::nullopt;
  const bool early = profile.early_gpt && is_early_gpt(run);
  CostOptions options = early ? *profile.early_gpt : profile.options;
  options.precision = run.precision;
  // The fused kernels of the published frameworks compute in 16 bits.
  if (run.precision == Precision::kFp32 && options.attention == AttentionKernel::kAuto &&
      run.plan.cp == 1) {
    options.attention = AttentionKernel::kUnfused;
  }
  ModelSpec model = run.model;
  if (early && !run.states_dropout) model.dropout = true;
  ParallelPlan plan = run.plan;
  if (options.stage_cut == StageCut::kWork) {
    plan.stage_layers.clear();  // no table states a split
  } else if (std::vector<std::int64_t> layers =
                 stage_layers(model, plan.pp * plan.vp, profile.stage_balance);
             !layers.empty()) {
    plan.stage_layers = std::move(layers);
  }
  const StepModel step(model, cluster, run.seq_len, run.global_batch, options);
  RunPrice result;
  result.estimate =
      plan.stage_layers.empty() && max_actions < StepModel::kMaxActions
          ? step.closed_form(plan, step.shape_costs(plan), step.unsplit(plan.pp * plan.vp))
          : step.predict(plan, max_actions);
  result.step_time = result.estimate.time;
  result.peak_memory =
      profile.logs_first_rank ? result.estimate.first_memory : result.estimate.memory.total();
  result.fits = result.estimate.memory.total() <= step.capacity();
  if (!result.fits && !run.states_recompute) {
    // Engines recompute in ways that a table without this column does not say. The run fits if the
    // most recompute makes it fit; its time stays that of none.
    plan.recompute = Recompute::kFull;
    result.fits = step.predict(plan, max_actions).memory.total() <= step.capacity();
  }
  return result;
}

}  // namespace copus
