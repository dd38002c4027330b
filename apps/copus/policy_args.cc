#include "apps/copus/policy_args.h"

#include "apps/copus/common.h"
#include "copus/base/text.h"

namespace copus {
namespace {

constexpr std::int64_t kManySteps = 1'000'000;

}  // namespace

void add_policy_options(CLI::App& command, PolicyArgs& a) {
  const auto text = [&](const char* flag, std::string& value, const char* help) {
    return command.add_option(flag, value, help)->check(not_empty())->group("Adapting");
  };
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
  text("--caution", a.caution,
       "standard deviations of a step time by which a change of layout must still gain (default: "
       "0.5)");
  text("--batch-range", a.batch_range,
       "LOW:HIGH, the batches to choose from (default: a quarter to 64 times --global-batch)");
  text("--fix", a.fix, "parts of the plan that stay: zero=0,tp=1 or z0.tp1 (default: none)");
}

Result<void> resolve_policy(const PolicyArgs& args, ControllerOptions& out) {
  PolicyOptions& policy = out.policy;
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
  COPUS_TRY_VOID(number(args.caution, "--caution", policy.caution, 0, 10));
  COPUS_TRY_VOID(number(args.calibration, "--calibration", policy.calibration, 1e-3, 1e6));
  COPUS_TRY_VOID(integer(args.decide_every, "--decide-every", out.decide_every, 1, kManySteps));
  COPUS_TRY_VOID(integer(args.dwell, "--dwell", policy.dwell_steps, 0, kManySteps));
  COPUS_TRY_VOID(integer(args.probe, "--probe", out.probe, 0, 64));
  if (!args.horizon.empty()) {
    COPUS_TRY(policy.horizon_s, parse_duration(args.horizon, "--horizon"));
  }
  if (out.probe > 0 && out.decide_every <= out.warm_steps) {
    return make_error(
        "--decide-every: got {} with --probe; want more than the {} steps whose time is not "
        "counted",
        out.decide_every, out.warm_steps);
  }
  return {};
}

Result<BatchRange> resolve_batch_range(const std::string& text, std::int64_t start) {
  BatchRange out;
  if (text.empty()) {
    out.lowest = start;
    for (int i = 0; i < 2 && out.lowest % 2 == 0; ++i) out.lowest /= 2;
    out.highest = start * 64;
    return out;
  }
  const std::vector<std::string_view> ends = split(text, ':');
  if (ends.size() != 2)
    return make_error("--batch-range: got {}; want LOW:HIGH as in 16:512", text);
  COPUS_TRY(out.lowest, parse_integer(ends[0], "--batch-range: lowest", 1, 1 << 30));
  COPUS_TRY(out.highest, parse_integer(ends[1], "--batch-range: highest", 1, 1 << 30));
  if (start < out.lowest || start > out.highest) {
    return make_error("--batch-range: got {}; want one that holds --global-batch {}", text, start);
  }
  return out;
}

}  // namespace copus
