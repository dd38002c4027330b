// FrameworkProfile: what Copus assumes about a named training framework. catalog/frameworks/ has a
// profile of each calibrated framework; docs/accuracy.md says which rows each was fitted to.
//
// A profile is a set of CostOptions. Each of them has a physical meaning, and none is about one
// model or one row. The profile also has what Copus needs to price tables of the framework's runs,
// because a table states less than a plan.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/cost/options.h"
#include "copus/spec/engine_limits.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// Which layers a pipeline stage gets if a table of runs does not say. (In a plan without a split
// every stage gets the same number.)
enum class StageBalance {
  kEven,  // the same number each; if chunks do not divide the layers, the two ends get fewer
  kCost,  // by parameters, in model order: a stage takes layers until it reaches its share of all
          // layers and the vocabulary projection
};

// How users of a framework choose a layout without a search.
struct UsualRule {
  std::string text = "tp in the node, then pp, rest dp";
  // The ZeRO stages to try, in this order.
  std::vector<int> zero = {1};
  // The dimensions of model parallelism that it uses, of tp, pp and cp.
  std::vector<PlanField> grow = {PlanField::kTp, PlanField::kPp, PlanField::kCp};
  // They grow only until the model fits. false: users try layouts and keep the fastest.
  bool first_that_fits = false;
};

// A model that the framework knows by a name of its own.
struct EngineModel {
  std::string model;   // in the catalog
  std::string name;    // in the framework
  SmallSet precision;  // in which this name trains
};

struct FrameworkProfile {
  std::string name;     // as --framework takes it: "megatron"
  std::string title;    // as its users write it: "Megatron-LM"
  CostOptions options;  // without meaning for `precision`, which the job states
  StageBalance stage_balance = StageBalance::kEven;
  // What differs for runs of GPT's shape on GPUs before Hopper: unfused attention, dropout, ZeRO-3
  // by DeepSpeed. Used only to price tables of such runs, which do not say it. None: nothing did.
  std::optional<CostOptions> early_gpt;
  bool logs_first_rank = false;  // the framework reports the peak memory of rank 0, not the largest
  // network_* keys of a cluster file for the cluster of the framework's published runs; null:
  // unknown. Used only to price such tables, which do not name their cluster. A plan names its own.
  Json network;
  std::optional<EngineLimits> limits;  // which plans it runs; none: every plan
  UsualRule usual;
  std::vector<EngineModel> models;
  // The framework whose options it has, except those that it states itself: no run of its own was
  // compared. Empty: none.
  std::string analogy;
};

// Returns the number of layers of each chunk; empty: the same number each.
std::vector<std::int64_t> stage_layers(const ModelSpec& model, std::int64_t chunks,
                                       StageBalance balance);

std::vector<std::string> framework_names();
// Returns the profile with this name ("megatron", …); the error lists the nearest names.
Result<FrameworkProfile> framework_profile(std::string_view name);
Result<FrameworkProfile> framework_from_json(const Json& json, const std::string& where);
Json framework_to_json(const FrameworkProfile& profile);
// The framework whose profile prices a job that names none.
constexpr const char* kDefaultFramework = "megatron";

// Returns the options of Copus's own engine, which reduces gradients in FP32 under the last
// backward pass. On CPUs the measured time of an operator includes the call, so the host's times
// are 0. Communication takes a core from computation there, so nothing hides the reduction.
CostOptions engine_cost_options(bool on_cpus, Precision precision);

}  // namespace copus
