// torchtitan's command line. Names and meanings were read in pytorch/torchtitan b5bcd76:
// config/configs.py, config/manager.py, distributed/pipeline_parallel.py, distributed/fsdp.py.
#include <fmt/format.h>

#include <optional>

#include "copus/interop/emitted_config.h"
#include "copus/spec/plan_fields.h"

namespace copus {
namespace {

using Int = std::int64_t;
using Layers = std::vector<Int>;

// How many layers fewer the first and the last stage get than an equal share.
struct LessLayers {
  Int first = 0, last = 0;
};

// Returns the layers of each stage as torchtitan divides them: embedding and head count as so many
// layers, and the first stages take what remains. Empty: it refuses these numbers.
Layers divide(Int layers, Int stages, const LessLayers& less) {
  const Int counted = layers + less.first + less.last;
  const Int each = counted / stages, extra = counted % stages;
  if (less.first > each || less.last > each) return {};
  Layers divided(static_cast<std::size_t>(stages), each);
  for (Int i = 0; i < extra; ++i) ++divided[static_cast<std::size_t>(i)];
  divided.front() -= less.first;
  divided.back() -= less.last;
  return divided;
}

// Returns the numbers with which torchtitan divides the layers like the plan; none if there are
// none.
std::optional<LessLayers> less_layers(const ParallelPlan& plan, Int layers) {
  const Int stages = plan.pp * plan.vp;
  Layers wanted = plan.stage_layers;
  if (wanted.empty()) wanted.assign(static_cast<std::size_t>(stages), layers / stages);
  const Int most = layers / stages + 1;
  for (LessLayers less; less.first <= most; ++less.first) {
    for (less.last = 0; less.last <= most; ++less.last) {
      if (divide(layers, stages, less) == wanted) return less;
    }
  }
  return std::nullopt;
}

Result<std::string> schedule_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGPipe:
      return std::string("GPipe");
    case ScheduleKind::k1F1B:
      return std::string("1F1B");
    case ScheduleKind::kInterleaved:
      return std::string("Interleaved1F1B");
    case ScheduleKind::kZeroBubble:
      break;
  }
  return field_error("schedule", "got {}; torchtitan runs gpipe, 1f1b or interleaved",
                     to_string(kind));
}

// The ways in which data-parallel ranks share weights, of which a plan has one.
Result<void> add_sharding(const ParallelPlan& plan, std::vector<std::string>& args) {
  const bool sharded = plan.zero > 0;
  const bool gathered_once = plan.pp > 1 && plan.zero == 1;
  if (plan.dp * plan.cp > 1 && plan.zero != 0 && plan.zero != 3 && !gathered_once) {
    return field_error("zero",
                       "got {} with pp={}; torchtitan runs 0, 3, which is FSDP, and with "
                       "pipelines 1, which is FSDP that gathers weights once a step",
                       plan.zero, plan.pp);
  }
  if (plan.cp > 1 && !sharded) {
    return field_error("zero", "got 0 with cp={}; torchtitan shards over the ranks of cp", plan.cp);
  }
  args.push_back(
      fmt::format("--parallelism.data_parallel_replicate_degree {}", sharded ? 1 : plan.dp));
  args.push_back(fmt::format("--parallelism.data_parallel_shard_degree {}", sharded ? plan.dp : 1));
  args.push_back(fmt::format("--parallelism.fsdp_reshard_after_forward {}",
                             plan.zero == 3 ? "always" : "never"));
  return {};
}

Result<void> add_pipeline(const ParallelPlan& plan, const EmitJob& job,
                          std::vector<std::string>& args) {
  args.push_back(fmt::format("--parallelism.pipeline_parallel_degree {}", plan.pp));
  if (plan.pp == 1) return {};
  COPUS_TRY(const std::string schedule, schedule_name(plan.schedule));
  const std::optional<LessLayers> less = less_layers(plan, job.model.layers);
  if (!less) {
    return field_error(
        "stage_layers",
        "got {}; torchtitan gives every stage the same number of layers, but fewer to the first "
        "and the last (pin split=equal)",
        value_text(plan, PlanField::kStageLayers));
  }
  args.push_back("--parallelism.pipeline_parallel_schedule " + schedule);
  args.push_back(
      fmt::format("--parallelism.num_pp_microbatches {}", plan.micro_batches(job.global_batch)));
  args.push_back(
      fmt::format("--parallelism.pipeline_parallel_first_stage_less_layers {}", less->first));
  args.push_back(
      fmt::format("--parallelism.pipeline_parallel_last_stage_less_layers {}", less->last));
  if (plan.vp <= 2) return {};  // without the next setting it makes one stage a rank, or two
  const Int stages = plan.pp * plan.vp;
  const Int counted = job.model.layers + less->first + less->last;
  const Int per_stage = (counted + stages - 1) / stages;
  // torchtitan divides the layers by this number and rounds up to get the number of stages.
  if ((counted + per_stage - 1) / per_stage != stages) {
    return field_error("vp", "got {} with {} layers; torchtitan cannot be told to make {} stages",
                       plan.vp, job.model.layers, stages);
  }
  args.push_back(fmt::format("--parallelism.pipeline_parallel_layers_per_stage {}", per_stage));
  return {};
}

}  // namespace

Result<EmittedConfig> torchtitan_config(const EmitJob& job, const ParallelPlan& plan) {
  COPUS_TRY(const FrameworkProfile framework, framework_profile("torchtitan"));
  if (plan.is_cut_by_work(job.options.stage_cut)) {
    return field_error("stage_cut", "got work; torchtitan cuts stages between layers");
  }
  COPUS_TRY(const std::string name, engine_model_name(framework, job));
  const Int etp = plan.ep > 1 ? 1 : plan.tp;
  if (job.model.is_moe() && plan.expert_tp() != etp) {
    return field_error("etp",
                       "got {} with tp={} and ep={}; want {}, because torchtitan spreads whole "
                       "experts over the ranks of tp too if ep is above 1, and else cuts them "
                       "over tp",
                       plan.expert_tp(), plan.tp, plan.ep, etp);
  }
  if (job.model.tied_embeddings && plan.pp > 1) {
    return field_error("pp", "got {}; torchtitan runs no pipelines with tied embeddings", plan.pp);
  }
  EmittedConfig config;
  std::vector<std::string>& args = config.args;
  const std::size_t slash = name.find('/');
  args.push_back("--module " + name.substr(0, slash));
  args.push_back("--config " + name.substr(slash + 1));
  args.push_back(fmt::format("--training.max_context_length {}", job.seq_len));
  args.push_back(fmt::format("--training.num_tokens_per_microbatch_per_dp_rank {}",
                             plan.micro_batch * job.seq_len));
  args.push_back(
      fmt::format("--training.num_tokens_per_train_step {}", job.global_batch * job.seq_len));
  args.push_back(fmt::format("--training.mixed_precision_param {}",
                             job.options.precision == Precision::kFp32 ? "float32" : "bfloat16"));
  args.push_back(fmt::format("--parallelism.tensor_parallel_degree {}", plan.tp));
  args.push_back(plan.sp || plan.tp == 1 ? "--parallelism.enable_sequence_parallel"
                                         : "--parallelism.no_enable_sequence_parallel");
  args.push_back(fmt::format("--parallelism.context_parallel_degree {}", plan.cp));
  COPUS_TRY_VOID(add_sharding(plan, args));
  COPUS_TRY_VOID(add_pipeline(plan, job, args));
  if (job.model.is_moe())
    args.push_back(fmt::format("--parallelism.expert_parallel_degree {}", plan.ep));
  // A subcommand, which comes last.
  args.push_back(fmt::format("activation-checkpoint:{}", to_string(plan.recompute)));
  return config;
}

}  // namespace copus
