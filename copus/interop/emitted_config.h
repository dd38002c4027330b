// Writes a plan as the flags or the config file of the engine that runs it. A model or plan that
// the engine cannot express is an error that names the field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/cost/framework.h"
#include "copus/cost/options.h"
#include "copus/spec/model_spec.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// What a configuration is written for. REQUIRES: the model outlives it.
struct EmitJob {
  const ModelSpec& model;
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;
  CostOptions options;
};

struct EmittedConfig {
  // Entries of a command line, one setting each: "--flag value", "key=value". Empty for a file.
  std::vector<std::string> args;
  Json file;  // a config file; null for a command line
};

// The engines whose configurations Copus writes: "megatron", "nemo", "torchtitan", "deepspeed".
const std::vector<std::string>& emit_targets();

// REQUIRES: `target` is one of emit_targets(), and the plan is valid for the job.
Result<EmittedConfig> emit_config(std::string_view target, const EmitJob& job,
                                  const ParallelPlan& plan);

// Returns pins under which the engine can be told every plan that it runs; empty if there are none.
// A user's pins come first.
PartialPlan emit_pins(std::string_view target);

// The engines, each in its own file.
Result<EmittedConfig> nemo_config(const EmitJob& job, const ParallelPlan& plan);
Result<EmittedConfig> torchtitan_config(const EmitJob& job, const ParallelPlan& plan);
Result<EmittedConfig> deepspeed_config(const EmitJob& job, const ParallelPlan& plan);

// Returns the name by which the framework knows this model in this precision. The error lists the
// models of the catalog that it knows.
Result<std::string> engine_model_name(const FrameworkProfile& framework, const EmitJob& job);

}  // namespace copus
