#include "apps/copus/args/policy_args.h"

#include "copus/base/text.h"

namespace copus {

Values<BatchRange> batch_range() {
  constexpr std::int64_t kMost = 1 << 30;
  return single<BatchRange>(
      "LOW:HIGH",
      [](const std::string& text, const std::string& field) -> Result<BatchRange> {
        const std::vector<std::string_view> ends = split(text, ':');
        if (ends.size() != 2) {
          return field_error(field, "got {}; want LOW:HIGH as in 16:512", text);
        }
        BatchRange range;
        COPUS_TRY(range.lowest, parse_integer(ends[0], field + ": lowest", 1, kMost));
        COPUS_TRY(range.highest, parse_integer(ends[1], field + ": highest", 1, kMost));
        return range;
      },
      [](const BatchRange& range) -> Json {
        return fmt::format("{}:{}", range.lowest, range.highest);
      });
}

Values<double> calibration_or_learned() {
  static constexpr double kLeast = 1e-3, kMost = 1e6;
  return single<double>(
      "X|learned",
      [](const std::string& text, const std::string& field) -> Result<double> {
        if (text == "learned") return kLearned;
        const Result<double> number = parse_number(text, field, kLeast, kMost);
        if (number) return number;
        return field_error(field, "got {}; want learned, or a number from {} to {:.0f}", text,
                           kLeast, kMost);
      },
      [](double value) -> Json { return value == kLearned ? Json("learned") : Json(value); },
      fmt::format("`learned`, or {} to {:.0f}", kLeast, kMost));
}

bool is_published(const PolicyArgs& args, const AnyOption* option) {
  const DecisionArgs& decisions = args.decisions;
  return option == &args.goodput || option == &args.calibration || option == &decisions.margin ||
         option == &decisions.batch_margin || option == &decisions.caution ||
         option == &decisions.probe || option == &decisions.batch_probe;
}

Result<void> use_published_policy(PolicyArgs& args, ControllerOptions& out) {
  for (AnyOption* option : args.options()) {
    if (!is_published(args, option)) continue;
    if (option->from() == From::kCommandLine) {
      return field_error(option->flag(),
                         "got it with --policy copus-2026, which sets it; want one");
    }
    option->leave_out_of_file();  // a file's value is for the other policies
  }
  out.policy = published(out.policy);
  out.probe = 0;
  out.calibration.reset();
  out.judge_moves = false;
  return {};
}

Result<void> resolve_policy(const PolicyArgs& args, ControllerOptions& out) {
  PolicyOptions& policy = out.policy;
  const DecisionArgs& decisions = args.decisions;
  if (args.goodput.given()) policy.kind = *args.goodput;
  if (*args.calibration != kLearned) {
    policy.calibration = *args.calibration;
  } else {
    out.calibration.emplace();
    if (args.goodput.given()) out.calibration->kind = *args.goodput;
  }
  policy.margin = *decisions.margin;
  policy.batch_margin = *decisions.batch_margin;
  policy.caution = *decisions.caution;
  policy.dwell_steps = *decisions.dwell;
  policy.horizon = *decisions.horizon;
  out.decide_every = *decisions.decide_every;
  out.probe = *decisions.probe;
  out.batch_probe = *decisions.batch_probe;
  return {};
}

Result<BatchRange> resolve_batches(const DecisionArgs& args, std::int64_t start) {
  constexpr std::int64_t kMostGrowth = 64;
  BatchRange usual{start, start * kMostGrowth};
  for (int i = 0; i < args.usual_batches.halvings && usual.lowest % 2 == 0; ++i) usual.lowest /= 2;
  const BatchRange range = args.batches.value_or(usual);
  if (range.lowest <= start && start <= range.highest) return range;
  return field_error("--batch-range", "got {}:{}; want one that holds --global-batch {}",
                     range.lowest, range.highest, start);
}

}  // namespace copus
