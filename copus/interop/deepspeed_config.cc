// DeepSpeed's config file. Keys and meanings were read in deepspeedai/DeepSpeed edaa722 (0.19.6):
// runtime/constants.py, runtime/zero/config.py, runtime/tensor_parallel/config.py,
// module_inject/auto_ep_config.py. The model is code there, and so is what the file cannot state:
// pipeline stages, and which layers recompute.
#include <fmt/format.h>

#include "copus/interop/emitted_config.h"

namespace copus {
namespace {

Result<void> check_expressible(const EmitJob& job, const ParallelPlan& plan) {
  if (is_quantised(job.options.precision)) {
    return field_error("--precision", "got {}; DeepSpeed's file has bf16, fp16 and fp32",
                       to_string(job.options.precision));
  }
  if (plan.pp > 1) {
    return field_error("pp",
                       "got {}; DeepSpeed's file has no stages: code makes them, by "
                       "PipelineModule(num_stages={}); want 1",
                       plan.pp, plan.pp);
  }
  if (plan.recompute != Recompute::kNone) {
    return field_error("recompute",
                       "got {}; DeepSpeed's file does not turn recomputation on: the "
                       "model's code does; want none",
                       to_string(plan.recompute));
  }
  if (plan.cp > 1) {
    return field_error("cp", "got {}; DeepSpeed passes no keys and values around a ring; want 1",
                       plan.cp);
  }
  if (plan.sp) {
    return field_error("sp", "got 1; DeepSpeed's tensor parallelism splits no sequences; want 0");
  }
  if (plan.ep > 1 && plan.expert_tp() > 1) {
    return field_error("etp", "got {} with ep={}; DeepSpeed cuts no expert then; want 1",
                       plan.expert_tp(), plan.ep);
  }
  return {};
}

}  // namespace

Result<EmittedConfig> deepspeed_config(const EmitJob& job, const ParallelPlan& plan) {
  COPUS_TRY_VOID(check_expressible(job, plan));
  EmittedConfig config;
  Json& file = config.file;
  file["train_batch_size"] = job.global_batch;
  file["train_micro_batch_size_per_gpu"] = plan.micro_batch;
  file["gradient_accumulation_steps"] = plan.micro_batches(job.global_batch);
  file["bf16"] = {{"enabled", job.options.precision == Precision::kBf16}};
  file["fp16"] = {{"enabled", job.options.precision == Precision::kFp16}};
  Json& zero = file["zero_optimization"];
  zero["stage"] = plan.zero;
  zero["overlap_comm"] = overlaps_gradients(job.options, plan.zero);
  if (plan.tp > 1) file["tensor_parallel"] = {{"autotp_size", plan.tp}};
  if (plan.ep > 1) file["expert_parallel"] = {{"enabled", true}, {"autoep_size", plan.ep}};
  return config;
}

}  // namespace copus
