#include "apps/copus/adapt_args.h"

#include "apps/copus/common.h"
#include "copus/base/text.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

constexpr std::int64_t kManySteps = 1'000'000;

// Two powers of two below the start and six above it, unless "LOW:HIGH" says otherwise.
Result<void> resolve_batches(const std::string& text, std::int64_t start, AdaptOptions& out) {
  if (text.empty()) {
    out.lowest_batch = start;
    for (int i = 0; i < 2 && out.lowest_batch % 2 == 0; ++i) out.lowest_batch /= 2;
    out.highest_batch = start * 64;
    return {};
  }
  const std::vector<std::string_view> ends = split(text, ':');
  if (ends.size() != 2)
    return make_error("--batch-range: got {}; want LOW:HIGH as in 16:512", text);
  COPUS_TRY(out.lowest_batch, parse_integer(ends[0], "--batch-range: lowest", 1, 1 << 30));
  COPUS_TRY(out.highest_batch, parse_integer(ends[1], "--batch-range: highest", 1, 1 << 30));
  if (start < out.lowest_batch || start > out.highest_batch) {
    return make_error("--batch-range: got {}; want one that holds --global-batch {}", text, start);
  }
  return {};
}

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
Result<void> check_start(const TrainerOptions& trainer, const PartialPlan& space,
                         const std::string& fix) {
  if (noise_prefix(trainer.plan, trainer.global_batch) == 0) {
    return make_error(
        "--plan: got {} at batch {}; want two micro-batches or two replicas, or the gradient noise "
        "scale cannot be measured (a smaller micro_batch)",
        short_name(trainer.plan), trainer.global_batch);
  }
  const Json start = plan_to_json(trainer.plan), pinned = plan_to_json(space.plan);
  for (const std::string& field : space.given) {
    // Both ZeRO stages are tried where --fix leaves it open.
    if (!start.contains(field) || (field == "zero" && fix.find("zero") == std::string::npos))
      continue;
    if (start[field] != pinned[field]) {
      return make_error("--plan: got {}={}; want {}, as --fix has it", field, start[field].dump(),
                        pinned[field].dump());
    }
  }
  return {};
}

}  // namespace

void add_adapt_options(CLI::App& command, AdaptArgs& a) {
  const auto text = [&](const char* flag, std::string& value, const char* help) {
    return command.add_option(flag, value, help)->check(not_empty())->group("Adapting");
  };
  text("--adapt", a.adapt,
       "off, batch (the layout stays) or full (batch, layout and micro-batch) (default: off)");
  text("--goodput", a.goodput,
       "what is maximised: plain (samples/s x efficiency) or lr-aware (x the root of the batch) "
       "(default: lr-aware)");
  text("--margin", a.margin, "Goodput that a change of layout has to gain (default: 0.10)");
  text("--batch-margin", a.batch_margin,
       "Goodput that a change of batch alone has to gain (default: 0.05)");
  text("--calibration", a.calibration, "critical batch / gradient noise scale (default: 2.0)");
  text("--decide-every", a.decide_every, "steps from one decision to the next (default: 10)");
  text("--dwell", a.dwell, "steps in one configuration before it is left (default: 20)");
  text("--horizon", a.horizon,
       "how long a gain is counted on where no limit says when the run ends (default: 1h)");
  text("--probe", a.probe,
       "layouts to try for real before a change whose speed is uncertain; their steps count as "
       "training (default: 0)");
  text("--batch-range", a.batch_range,
       "LOW:HIGH, the batches to choose from (default: a quarter to 64 times --global-batch)");
  text("--fix", a.fix, "parts of the plan that stay: zero=0,tp=1 (default: none)");
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
  if (!args.goodput.empty()) {
    COPUS_TRY(policy.kind, parse_goodput_kind(args.goodput));
  }
  const auto number = [](const std::string& text, const char* flag, double& value, double low,
                         double high) -> Result<void> {
    if (text.empty()) return {};
    COPUS_TRY(value, parse_number(text, flag, low, high));
    return {};
  };
  const auto integer = [](const std::string& text, const char* flag, std::int64_t& value,
                          std::int64_t low, std::int64_t high) -> Result<void> {
    if (text.empty()) return {};
    COPUS_TRY(value, parse_integer(text, flag, low, high));
    return {};
  };
  COPUS_TRY_VOID(number(args.margin, "--margin", policy.margin, 0, 10));
  COPUS_TRY_VOID(number(args.batch_margin, "--batch-margin", policy.batch_margin, 0, 10));
  COPUS_TRY_VOID(number(args.calibration, "--calibration", policy.calibration, 1e-3, 1e6));
  COPUS_TRY_VOID(
      integer(args.decide_every, "--decide-every", out.controller.decide_every, 1, kManySteps));
  COPUS_TRY_VOID(integer(args.dwell, "--dwell", policy.dwell_steps, 0, kManySteps));
  COPUS_TRY_VOID(integer(args.probe, "--probe", out.controller.probe, 0, 64));
  if (!args.horizon.empty()) {
    COPUS_TRY(policy.horizon_s, parse_duration(args.horizon, "--horizon"));
  }
  COPUS_TRY_VOID(resolve_batches(args.batch_range, trainer.global_batch, out));
  COPUS_TRY(out.spaces, resolve_spaces(args.fix, trainer));
  if (!args.cluster.empty()) {
    COPUS_TRY(out.cluster, load_cluster(args.cluster));
    if (out.cluster->gpus() != ranks) {
      return make_error("--cluster: got {}, which has {} GPUs; want as many as there are ranks, {}",
                        args.cluster, out.cluster->gpus(), ranks);
    }
  }
  out.choose_plan = out.on() && !plan_given;
  if (out.on() && plan_given) COPUS_TRY_VOID(check_start(trainer, out.spaces.front(), args.fix));
  if (out.controller.probe > 0 && out.controller.decide_every <= out.controller.warm_steps) {
    return make_error(
        "--decide-every: got {} with --probe; want more than the {} steps whose time is not "
        "counted",
        out.controller.decide_every, out.controller.warm_steps);
  }
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
  out.emplace_back("decide-every", options.controller.decide_every);
  out.emplace_back("dwell", policy.dwell_steps);
  out.emplace_back("horizon", fmt::format("{}s", policy.horizon_s));
  out.emplace_back("probe", options.controller.probe);
  out.emplace_back("batch-range",
                   fmt::format("{}:{}", options.lowest_batch, options.highest_batch));
  if (!args.fix.empty()) out.emplace_back("fix", args.fix);
  if (!args.cluster.empty()) out.emplace_back("cluster", args.cluster);
  return out;
}

}  // namespace copus
