// Options for the choice of batch and layout, of live runs and of simulated ones.
#pragma once

#include <string>

#include "copus/args/option.h"
#include "copus/goodput/controller.h"

namespace copus {

struct BatchRange {
  std::int64_t lowest = 0, highest = 0;
  friend bool operator==(const BatchRange&, const BatchRange&) = default;
};
Values<BatchRange> batch_range();  // "LOW:HIGH"

constexpr const char* kAdapting = "Adapting";

// Options for decisions. A run that makes none does not use them.
struct DecisionArgs : OptionGroup {
  static constexpr std::int64_t kManySteps = 1'000'000;

  using OptionGroup::OptionGroup;
  Option<double> margin{this, "--margin", number(0, 10),
                        "smallest relative gain in Goodput for which the layout changes",
                        PolicyOptions().margin};
  Option<double> batch_margin{this, "--batch-margin", number(0, 10),
                              "the same for a change of batch or micro-batch only",
                              PolicyOptions().batch_margin};
  Option<double> caution{this, "--caution", number(0, 10),
                         "a change of layout must gain even if the ratio of step times is this "
                         "many standard deviations worse",
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
  Option<std::int64_t> probe{
      this, "--probe", integer(0, 64),
      "layouts to try with real training steps before a change whose speed is uncertain",
      ControllerOptions().probe};
  Option<BatchRange> batches{this, "--batch-range", batch_range(),
                             "the batches to choose from: LOW, 2 LOW, ... up to HIGH",
                             Otherwise{"a quarter to 64 times --global-batch"}};
};

struct PolicyArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<GoodputKind> goodput{this, "--goodput", one_of(kGoodputKinds),
                              "what is maximised: plain (samples/s x efficiency) or lr-aware (that "
                              "x the root of the batch)",
                              PolicyOptions().kind};
  Option<double> calibration{this, "--calibration", number(1e-3, 1e6),
                             "critical batch / gradient noise scale", PolicyOptions().calibration};
  DecisionArgs decisions{this, kAdapting};
  Option<std::string> fix{this, "--fix", text("PLAN|FILE"),
                          "parts of the plan that are fixed: zero=0,tp=1 or z0.tp1"};
};

// Leaves policy.adapt as it is, and policy.kind unless --goodput is given.
Result<void> resolve_policy(const PolicyArgs& args, ControllerOptions& out);

// From two powers of two below the start to six above it.
BatchRange usual_batch_range(std::int64_t start);
Result<void> check_batch_range(const BatchRange& range, std::int64_t start);

}  // namespace copus
