#include "apps/copus/args/adapt_args.h"

#include <filesystem>
#include <system_error>

#include "apps/copus/common.h"
#include "copus/base/text.h"
#include "copus/goodput/noise_prefix.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

// The engine trains ZeRO stages 0 and 1, one context, no experts.
Result<std::vector<PartialPlan>> resolve_spaces(const std::string& fix, TrainerOptions trainer) {
  PartialPlan pinned;
  if (!fix.empty()) {
    COPUS_TRY(pinned, load_partial_plan(fix, "--fix"));
    trainer.plan = pinned.plan;
    COPUS_TRY_VOID(check_trainable(trainer));
  }
  for (const char* field : {"cp", "ep"}) {
    if (!pinned.has(field)) pinned.given.emplace_back(field);
  }
  if (pinned.has("zero")) return std::vector<PartialPlan>{pinned};
  pinned.given.emplace_back("zero");
  PartialPlan sharded = pinned;
  sharded.plan.zero = 1;
  return std::vector<PartialPlan>{pinned, sharded};
}

// The plan that a user begins with: one that can be measured, and that --fix allows.
Result<void> check_start(const TrainerOptions& trainer, const std::vector<PartialPlan>& spaces) {
  if (noise_prefix(trainer.plan, trainer.global_batch) == 0) {
    return make_error(
        "--plan: got {} at batch {}; want two micro-batches or two replicas, or the gradient noise "
        "scale cannot be measured (a smaller micro_batch)",
        short_name(trainer.plan), trainer.global_batch);
  }
  for (const PartialPlan& space : spaces) {
    if (space.contradicted_by(trainer.plan).empty()) return {};
  }
  const std::string field = spaces.front().contradicted_by(trainer.plan);
  return make_error("--plan: got {}={}; want {}, as --fix has it", field,
                    plan_to_json(trainer.plan).at(field).dump(),
                    plan_to_json(spaces.front().plan).at(field).dump());
}

// Nobody is told that a run has done as asked when it has not.
Result<void> check_no_effect(const AnyOption& option, const AdaptArgs& args, const char* needed) {
  // Of a file's options a command line may switch off what they are for.
  if (!option.given() || option.from() < args.adapt.from()) return {};
  return make_error("{}: got {} without {}; want both, or neither", option.flag(),
                    spelled(option.value()).front(), needed);
}

// A run that does not adapt makes no decisions, and looks for a plan only where the best is wanted.
Result<void> check_use(AdaptArgs& args, PlanChoice plan) {
  for (AnyOption* option : args.policy.decisions.options()) {
    COPUS_TRY_VOID(check_no_effect(*option, args, "--adapt batch, full or track"));
    option->leave_out_of_file();
  }
  for (AnyOption* option :
       {static_cast<AnyOption*>(&args.policy.fix), static_cast<AnyOption*>(&args.cluster)}) {
    if (plan != PlanChoice::kBest) {
      COPUS_TRY_VOID(
          check_no_effect(*option, args, "--adapt batch, full or track, or --plan best"));
    }
    option->leave_out_of_file();
  }
  return {};
}

}  // namespace

Result<AdaptOptions> resolve_adapt(AdaptArgs& args, const TrainerOptions& trainer, PlanChoice plan,
                                   int ranks) {
  AdaptOptions out;
  PolicyArgs& policy = args.policy;
  out.controller.policy.adapt = *args.adapt;
  COPUS_TRY_VOID(resolve_policy(policy, out.controller));
  policy.decisions.batches.set_default(usual_batch_range(trainer.global_batch));
  const BatchRange& batches = *policy.decisions.batches;
  COPUS_TRY_VOID(check_batch_range(batches, trainer.global_batch));
  out.lowest_batch = batches.lowest;
  out.highest_batch = batches.highest;
  COPUS_TRY(out.spaces, resolve_spaces(policy.fix.value_or(""), trainer));
  if (args.cluster.known()) {
    COPUS_TRY(out.cluster, load_cluster(*args.cluster));
    if (out.cluster->gpus() != ranks) {
      return make_error("--cluster: got {}, which has {} GPUs; want as many as there are ranks, {}",
                        *args.cluster, out.cluster->gpus(), ranks);
    }
    std::error_code ignored;
    if (std::filesystem::is_regular_file(*args.cluster, ignored)) {
      args.cluster.write_as(from_anywhere(*args.cluster));
    }
  }
  if (!out.on()) COPUS_TRY_VOID(check_use(args, plan));
  out.choose_plan = plan == PlanChoice::kBest || (out.on() && plan == PlanChoice::kLeftOpen);
  if (out.on() && plan == PlanChoice::kGiven) COPUS_TRY_VOID(check_start(trainer, out.spaces));
  return out;
}

}  // namespace copus
