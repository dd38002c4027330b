// FrameworkProfile: what is assumed of a training framework, by name. The catalog has one for each
// that was calibrated (catalog/frameworks/); docs/accuracy.md says from which rows.
//
// A profile is a set of CostOptions, all with a physical meaning, and nothing about any one model
// or row; and what is needed to price tables of its runs, which say less than a plan does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/cost/options.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// Which layers a pipeline stage gets where a table does not say. (A plan without a split means the
// same number each.)
enum class StageBalance {
  kEven,  // the same number each, one less on the ends where they do not divide
  kCost,  // by parameters of layers and vocabulary projection, in order: a stage is full when its
          // share is reached
};

struct FrameworkProfile {
  std::string name;
  CostOptions options;  // its precision is nobody's: the job states it
  StageBalance stage_balance = StageBalance::kEven;
  bool gpt_dropout = false;      // GPT shapes are trained with dropout, where a table does not say
  bool logs_first_rank = false;  // the peak memory that it reports is rank 0's, not the largest
  // network_* keys of a cluster file as they were on the cluster that its
  // published runs come from, which tables do not name; null: nothing known. For pricing such
  // tables: a plan is for the cluster that it names.
  Json network;
};

// Layers of each of `chunks` chunks under a balance. Empty: the same number each.
std::vector<std::int64_t> stage_layers(const ModelSpec& model, std::int64_t chunks,
                                       StageBalance balance);

std::vector<std::string> framework_names();
// "megatron", …; the error lists the nearest names.
Result<FrameworkProfile> framework_profile(std::string_view name);
Result<FrameworkProfile> framework_from_json(const Json& json, const std::string& where);
Json framework_to_json(const FrameworkProfile& profile);
// The profile that a job is priced with where none is named.
constexpr const char* kDefaultFramework = "megatron";

// Copus's own engine, which reduces gradients in FP32 under the last backward pass. On CPUs
// operators are measured as they are called, and who moves bytes takes a core to do it.
CostOptions engine_cost_options(bool on_cpus, Precision precision);

}  // namespace copus
