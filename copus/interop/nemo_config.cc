// NeMo's command line: arguments of run_recipe.py in NVIDIA-NeMo/Megatron-Bridge 067f987, which are
// fields of its ConfigContainer. A recipe has values of its own, so every setting of the plan is
// stated, also where it is off.
#include <fmt/format.h>

#include "copus/interop/emitted_config.h"
#include "copus/interop/megatron_args.h"

namespace copus {
namespace {

const char* text_of(bool on) { return on ? "true" : "false"; }

Result<std::string> precision_name(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return std::string("bf16_mixed");
    case Precision::kFp16:
      return std::string("fp16_mixed");
    case Precision::kFp8:
      return std::string("bf16_with_fp8_delayed_scaling_mixed");
    case Precision::kFp8Current:
      return std::string("bf16_with_fp8_current_scaling_mixed");
    case Precision::kMxfp8:
      return std::string("bf16_with_mxfp8_mixed");
    case Precision::kNvfp4:
      return std::string("bf16_with_nvfp4_mixed");
    case Precision::kFp32:
      break;
  }
  return field_error("--precision", "got fp32; NeMo's recipes train in bf16, fp16, FP8 or FP4");
}

void add_recompute(Recompute recompute, std::vector<std::string>& args) {
  const bool full = recompute == Recompute::kFull;
  args.push_back(fmt::format("model.recompute_granularity={}",
                             recompute == Recompute::kNone ? "null" : to_string(recompute)));
  args.push_back(fmt::format("model.recompute_method={}", full ? "uniform" : "null"));
  args.push_back(fmt::format("model.recompute_num_layers={}", full ? "1" : "null"));
  if (recompute == Recompute::kSelective) args.push_back("model.recompute_modules=[core_attn]");
}

void add_sharding(const ParallelPlan& plan, const CostOptions& options,
                  std::vector<std::string>& args) {
  const bool overlap = overlaps_gradients(options, plan.zero);
  for (const char* part : {"ddp", "optimizer"}) {
    args.push_back(fmt::format("{}.use_distributed_optimizer={}", part, text_of(plan.zero >= 1)));
  }
  args.push_back(fmt::format("ddp.overlap_grad_reduce={}", text_of(overlap)));
  args.push_back(fmt::format("ddp.overlap_param_gather={}", text_of(overlap && plan.zero >= 1)));
  args.push_back(fmt::format("ddp.use_megatron_fsdp={}", text_of(plan.zero >= 2)));
  if (plan.zero < 2) return;
  args.push_back(fmt::format("ddp.data_parallel_sharding_strategy={}",
                             plan.zero == 2 ? "optim_grads" : "optim_grads_params"));
  args.push_back("checkpoint.ckpt_format=fsdp_dtensor");
}

}  // namespace

Result<EmittedConfig> nemo_config(const EmitJob& job, const ParallelPlan& plan) {
  COPUS_TRY(const FrameworkProfile framework, framework_profile("nemo"));
  COPUS_TRY(const std::string precision, precision_name(job.options.precision));
  // NeMo trains with Megatron Core, so what Megatron-LM cannot run, it cannot run either.
  const Result<std::vector<std::string>> flags =
      megatron_args(job.model, plan, job.seq_len, job.global_batch, job.options);
  if (!flags) return flags.error();
  COPUS_TRY(const std::string name, engine_model_name(framework, job));
  EmittedConfig config;
  std::vector<std::string>& args = config.args;
  args.push_back("--model " + name);
  args.push_back("--mode pretrain");
  args.push_back("mixed_precision=" + precision);
  args.push_back(fmt::format("dataset.seq_length={}", job.seq_len));
  args.push_back(fmt::format("train.global_batch_size={}", job.global_batch));
  args.push_back(fmt::format("train.micro_batch_size={}", plan.micro_batch));
  args.push_back(fmt::format("model.tensor_model_parallel_size={}", plan.tp));
  args.push_back(fmt::format("model.sequence_parallel={}", text_of(plan.sp)));
  args.push_back(fmt::format("model.context_parallel_size={}", plan.cp));
  if (const std::string type = cp_comm_type(job.model, plan, job.seq_len); !type.empty())
    args.push_back("model.cp_comm_type=" + type);
  args.push_back(fmt::format("model.pipeline_model_parallel_size={}", plan.pp));
  args.push_back(plan.vp > 1 ? fmt::format("model.virtual_pipeline_model_parallel_size={}", plan.vp)
                             : "model.virtual_pipeline_model_parallel_size=null");
  args.push_back(plan.stage_layers.empty()
                     ? std::string("model.pipeline_model_parallel_layout=null")
                     : "model.pipeline_model_parallel_layout=" + pipeline_layout(plan));
  args.push_back("model.account_for_embedding_in_pipeline_split=false");
  args.push_back("model.account_for_loss_in_pipeline_split=false");
  args.push_back(fmt::format("model.expert_model_parallel_size={}", plan.ep));
  if (job.model.is_moe())
    args.push_back(fmt::format("model.expert_tensor_parallel_size={}", plan.expert_tp()));
  add_recompute(plan.recompute, args);
  add_sharding(plan, job.options, args);
  return config;
}

}  // namespace copus
