#include "copus/interop/emitted_config.h"

#include <algorithm>

#include "copus/base/check.h"
#include "copus/base/text.h"
#include "copus/interop/megatron_args.h"
#include "copus/spec/hf_config.h"

namespace copus {

const std::vector<std::string>& emit_targets() {
  static const std::vector<std::string> targets = {"megatron", "nemo", "torchtitan", "deepspeed"};
  return targets;
}

Result<EmittedConfig> emit_config(std::string_view target, const EmitJob& job,
                                  const ParallelPlan& plan) {
  if (target == "nemo") return nemo_config(job, plan);
  if (target == "torchtitan") return torchtitan_config(job, plan);
  if (target == "deepspeed") return deepspeed_config(job, plan);
  COPUS_CHECK(target == "megatron");
  EmittedConfig config;
  COPUS_TRY(config.args,
            megatron_args(job.model, plan, job.seq_len, job.global_batch, job.options));
  return config;
}

PartialPlan emit_pins(std::string_view target) {
  const char* pins = target == "torchtitan"  ? "split=equal"
                     : target == "deepspeed" ? "pp=1,recompute=none,cp=1,sp=0"
                                             : nullptr;
  return pins == nullptr ? PartialPlan() : parse_plan_text(pins, "--emit").value();
}

Result<std::string> engine_model_name(const FrameworkProfile& framework, const EmitJob& job) {
  std::vector<std::string> known;
  for (const EngineModel& each : framework.models) {
    COPUS_TRY(ModelSpec model, load_model(each.model));
    const bool trains = each.precision.has(job.options.precision);
    model.name = job.model.name;
    if (trains && model == job.model) return each.name;
    if (trains) known.push_back(each.model);
  }
  return field_error("model", "got {}; want {}, for which {} has a configuration in {}",
                     job.model.name, join_or(known), framework.title,
                     to_string(job.options.precision));
}

}  // namespace copus
