#include "apps/copus/adapt_args.h"

#include <filesystem>
#include <system_error>

#include "apps/copus/common.h"
#include "copus/base/text.h"
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
  using enum PlanField;
  pinned.pin({kCp, kEp}, pinned.plan);
  if (pinned.has(kZero)) return std::vector<PartialPlan>{pinned};
  pinned.pin({kZero}, pinned.plan);
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
    if (!space.contradicted_by(trainer.plan)) return {};
  }
  const PlanField field = *spaces.front().contradicted_by(trainer.plan);
  return make_error("--plan: got {}={}; want {}, as --fix has it", name_of(field),
                    value_text(trainer.plan, field), value_text(spaces.front().plan, field));
}

}  // namespace

void add_adapt_options(CLI::App& command, AdaptArgs& a) {
  const auto text = [&](const char* flag, std::string& value, const char* help) {
    return command.add_option(flag, value, help)->check(not_empty())->group("Adapting");
  };
  text("--adapt", a.adapt,
       "off, batch (the layout stays), full (batch, layout and micro-batch) or track (the critical "
       "batch; the layout stays) (default: off)");
  add_policy_options(command, a);
  text("--cluster", a.cluster,
       "what step times are predicted from: NODESxGPUSxGPU, a catalog name or a cluster file "
       "(default: measured on CPUs, the catalog's on GPUs)");
}

Result<AdaptOptions> resolve_adapt(const AdaptArgs& args, const TrainerOptions& trainer,
                                   bool plan_given, int ranks) {
  AdaptOptions out;
  PolicyOptions& policy = out.controller.policy;
  policy.adapt = Adapt::kOff;
  if (!args.adapt.empty()) {
    COPUS_TRY(policy.adapt, parse_adapt(args.adapt));
  }
  COPUS_TRY_VOID(resolve_policy(args, out.controller));
  COPUS_TRY(const BatchRange batches, resolve_batch_range(args.batch_range, trainer.global_batch));
  out.lowest_batch = batches.lowest;
  out.highest_batch = batches.highest;
  COPUS_TRY(out.spaces, resolve_spaces(args.fix, trainer));
  if (!args.cluster.empty()) {
    COPUS_TRY(out.cluster, load_cluster(args.cluster));
    if (out.cluster->gpus() != ranks) {
      return make_error("--cluster: got {}, which has {} GPUs; want as many as there are ranks, {}",
                        args.cluster, out.cluster->gpus(), ranks);
    }
  }
  out.choose_plan = out.on() && !plan_given;
  if (out.on() && plan_given) COPUS_TRY_VOID(check_start(trainer, out.spaces));
  return out;
}

std::vector<std::pair<std::string, Json>> adapt_config(const AdaptOptions& options,
                                                       const AdaptArgs& args) {
  const PolicyOptions& policy = options.controller.policy;
  std::vector<std::pair<std::string, Json>> out;
  out.emplace_back("adapt", to_string(policy.adapt));
  out.emplace_back("goodput", to_string(policy.kind));
  out.emplace_back("calibration", policy.calibration);
  if (!options.on()) return out;
  out.emplace_back("margin", policy.margin);
  out.emplace_back("batch-margin", policy.batch_margin);
  out.emplace_back("caution", policy.caution);
  out.emplace_back("decide-every", options.controller.decide_every);
  out.emplace_back("dwell", policy.dwell_steps);
  out.emplace_back("horizon", fmt::format("{}s", policy.horizon_s));
  out.emplace_back("probe", options.controller.probe);
  out.emplace_back("batch-range",
                   fmt::format("{}:{}", options.lowest_batch, options.highest_batch));
  if (!args.fix.empty()) out.emplace_back("fix", args.fix);
  if (!args.cluster.empty()) {
    std::error_code ignored;
    const bool is_file = std::filesystem::is_regular_file(args.cluster, ignored);
    out.emplace_back("cluster", is_file ? from_anywhere(args.cluster) : args.cluster);
  }
  return out;
}

}  // namespace copus
