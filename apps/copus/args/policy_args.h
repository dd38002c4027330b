// Options for the choice of batch and layout, in live and in simulated runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/copus/args/shared_options.h"
#include "copus/args/option.h"
#include "copus/goodput/controller.h"

namespace copus {

struct BatchRange {
  std::int64_t lowest = 0, highest = 0;
  friend bool operator==(const BatchRange&, const BatchRange&) = default;
};
Values<BatchRange> batch_range();  // "LOW:HIGH"

// The critical batch over the noise scale, or kLearned for "learned".
inline constexpr double kLearned = 0;
Values<double> calibration_or_learned();

constexpr const char* kAdapting = "Adapting";

// The default of --batch-range, which differs between commands.
struct UsualBatches {
  int halvings;      // from --global-batch to the lowest batch; an odd batch is not halved
  const char* text;  // what --help says
};
inline constexpr UsualBatches kFromAQuarter{2, "a quarter to 64 times --global-batch"};
inline constexpr UsualBatches kFromTheStart{0, "1 to 64 times --global-batch"};

// Options for decisions. A run that makes no decisions does not use them.
struct DecisionArgs : OptionGroup {
  static constexpr std::int64_t kManySteps = 1'000'000;

  DecisionArgs(OptionGroup* whole, std::string title, const UsualBatches& usual)
      : OptionGroup(whole, std::move(title)), usual_batches(usual) {}

  const UsualBatches usual_batches;
  Option<double> margin{this, "--margin", number(0, 10),
                        "smallest relative gain in Goodput for which the layout changes",
                        PolicyOptions().margin};
  Option<double> batch_margin{this, "--batch-margin", number(0, 10),
                              "the same for a change of batch or micro-batch only",
                              PolicyOptions().batch_margin};
  Option<double> caution{this, "--caution", number(0, 10),
                         "a change of layout must gain more than X standard deviations of the "
                         "predicted ratio of its step time to the present one",
                         PolicyOptions().caution};
  Option<std::int64_t> decide_every{this, "--decide-every", integer(1, kManySteps),
                                    "steps between decisions", ControllerOptions().decide_every};
  Option<std::int64_t> dwell{
      this, "--dwell", integer(0, kManySteps),
      "fewest steps in a configuration before leaving it; twice as many before undoing a move",
      PolicyOptions().dwell_steps};
  Option<Seconds> horizon{this, "--horizon", duration(),
                          "how long a gain is expected to last if no limit says when the run ends",
                          PolicyOptions().horizon};
  Option<double> probe{this, "--probe", number(0, 0.5),
                       "share of the run's time that tries of layouts may cost; 0: no tries",
                       ControllerOptions().probe};
  Option<double> batch_probe{
      this, "--batch-probe", number(0, 0.5),
      "share of the run's time that tries of batches may cost, which show the critical batch; 0: "
      "no tries",
      ControllerOptions().batch_probe};
  Option<BatchRange> batches{this, "--batch-range", batch_range(),
                             "the batches to choose from: LOW, 2 LOW, ... up to HIGH",
                             Otherwise{usual_batches.text}};
};

struct PolicyArgs : OptionGroup {
  PolicyArgs(OptionGroup* whole, const std::string& title, const UsualBatches& usual)
      : OptionGroup(whole, title), decisions{this, title, usual} {}

  Option<GoodputKind> goodput{this, "--goodput", one_of(kGoodputKinds),
                              "what is maximised: plain is samples/s x efficiency; lr-aware is "
                              "samples/s x efficiency x the square root of the batch",
                              Otherwise{"lr-aware; learned too where --calibration is"}};
  Option<double> calibration{this, "--calibration", calibration_or_learned(),
                             "critical batch / gradient noise scale; learned: from the losses of "
                             "the run, wherever its batch changes",
                             kLearned};
  DecisionArgs decisions;
  FixOption fix{this};
};

// Whether --policy copus-2026 sets this option, so that a user cannot.
bool is_published(const PolicyArgs& args, const AnyOption* option);
// Sets them in `out`, whatever a file says, and leaves them out of files. An error if the command
// line has one.
Result<void> use_published_policy(PolicyArgs& args, ControllerOptions& out);

// Sets the options of `out` from `args`. Leaves policy.adapt unchanged, and policy.kind too unless
// --goodput is given.
Result<void> resolve_policy(const PolicyArgs& args, ControllerOptions& out);

// Returns the batches that a run may choose from if it begins with `start`; an error if the user's
// range does not hold `start`.
Result<BatchRange> resolve_batches(const DecisionArgs& args, std::int64_t start);

}  // namespace copus
