#include "apps/copus/args/adapt_args.h"

#include <filesystem>
#include <system_error>

#include "apps/copus/common.h"
#include "copus/base/text.h"
#include "copus/goodput/noise_prefix.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// Returns the search spaces of --adapt: partial plans that pin --fix and what the engine cannot
// vary. The engine trains ZeRO stages 0 and 1, without context or expert parallelism.
Result<std::vector<PartialPlan>> resolve_spaces(const std::string& fix, TrainerOptions trainer) {
  PartialPlan pinned;
  if (!fix.empty()) {
    COPUS_TRY(pinned, load_partial_plan(fix, "--fix"));
    trainer.plan = pinned.plan;
    COPUS_TRY_VOID(check_trainable(trainer));
  }
  using enum PlanField;
  pinned.pin({kCp, kEp}, pinned.plan);
  if (pinned.has(kZero)) return std::vector<PartialPlan>{pinned};
  pinned.pin({kZero}, pinned.plan);
  PartialPlan sharded = pinned;
  sharded.plan.zero = 1;
  return std::vector<PartialPlan>{pinned, sharded};
}

// Checks that the noise scale can be measured with the plan that the run begins with, and that
// --fix allows this plan.
Result<void> check_start(const TrainerOptions& trainer, const std::vector<PartialPlan>& spaces) {
  if (noise_prefix(trainer.plan, trainer.global_batch) == 0) {
    return field_error(
        "--plan",
        "got {} at batch {}; want two micro-batches or two replicas, because the gradient noise "
        "scale cannot be measured from one (try a smaller micro_batch)",
        short_name(trainer.plan), trainer.global_batch);
  }
  for (const PartialPlan& space : spaces) {
    if (!space.contradicted_by(trainer.plan)) return {};
  }
  const PlanField field = *spaces.front().contradicted_by(trainer.plan);
  return field_error("--plan", "got {}={}; want {}, as --fix has it", name_of(field),
                     value_text(trainer.plan, field), value_text(spaces.front().plan, field));
}

// Leaves the options for decisions out of the config.toml of a run that makes none. Leaves out
// --fix and --cluster too, unless the run searches for the best plan.
void leave_out_what_is_not_used(AdaptArgs& args, PlanChoice plan) {
  args.rules.leave_out_of_file();
  for (AnyOption* option : args.policy.decisions.options()) option->leave_out_of_file();
  if (plan == PlanChoice::kBest) return;
  args.policy.fix.leave_out_of_file();
  args.cluster.leave_out_of_file();
}

}  // namespace

Result<AdaptOptions> resolve_adapt(AdaptArgs& args, const TrainerOptions& trainer, PlanChoice plan,
                                   int ranks) {
  AdaptOptions out;
  PolicyArgs& policy = args.policy;
  out.controller.policy.adapt = *args.adapt;
  COPUS_TRY_VOID(resolve_policy(policy, out.controller));
  if (*args.rules == Rules::kCopus2026) {
    COPUS_TRY_VOID(use_published_policy(policy, out.controller));
  }
  COPUS_TRY(const BatchRange batches, resolve_batches(policy.decisions, trainer.global_batch));
  policy.decisions.batches.set_default(batches);
  out.lowest_batch = batches.lowest;
  out.highest_batch = batches.highest;
  COPUS_TRY(out.spaces, resolve_spaces(policy.fix.value_or(""), trainer));
  if (args.cluster.known()) {
    COPUS_TRY(out.cluster, load_cluster(*args.cluster));
    if (out.cluster->gpus() != ranks) {
      return field_error("--cluster", "got {}, which has {}; want as many as there are ranks, {}",
                         *args.cluster, counted(out.cluster->gpus(), "GPU"), ranks);
    }
    if (is_file(*args.cluster)) args.cluster.write_as(from_anywhere(*args.cluster));
  }
  if (policy.fix.known() && is_file(*policy.fix)) {
    policy.fix.write_as(from_anywhere(*policy.fix));
  }
  if (!out.on()) leave_out_what_is_not_used(args, plan);
  out.choose_plan = plan == PlanChoice::kBest || (out.on() && plan == PlanChoice::kLeftOpen);
  if (out.on() && plan == PlanChoice::kGiven) COPUS_TRY_VOID(check_start(trainer, out.spaces));
  return out;
}

}  // namespace copus
