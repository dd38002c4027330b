// The options that say how batch and layout are chosen, of a live run and of a simulated one.
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

// Of decisions: a run that makes none has no use for them.
struct DecisionArgs : OptionGroup {
  static constexpr std::int64_t kManySteps = 1'000'000;

  using OptionGroup::OptionGroup;
  Option<double> margin{this, "--margin", number(0, 10),
                        "Goodput that a change of layout has to gain", PolicyOptions().margin};
  Option<double> batch_margin{this, "--batch-margin", number(0, 10),
                              "Goodput that a change of batch or micro-batch alone has to gain",
                              PolicyOptions().batch_margin};
  Option<double> caution{
      this, "--caution", number(0, 10),
      "standard deviations of a step time by which a change of layout must still gain",
      PolicyOptions().caution};
  Option<std::int64_t> decide_every{this, "--decide-every", integer(1, kManySteps),
                                    "steps from one decision to the next",
                                    ControllerOptions().decide_every};
  Option<std::int64_t> dwell{
      this, "--dwell", integer(0, kManySteps),
      "steps in one configuration before it is left; twice as many to undo a move",
      PolicyOptions().dwell_steps};
  Option<Seconds> horizon{this, "--horizon", duration(),
                          "how long a gain is counted on where no limit says when the run ends",
                          PolicyOptions().horizon};
  Option<std::int64_t> probe{
      this, "--probe", integer(0, 64),
      "layouts to try for real before a change whose speed is uncertain; their steps count as "
      "training",
      ControllerOptions().probe};
  Option<BatchRange> batches{this, "--batch-range", batch_range(),
                             "the batches to choose from: LOW, twice that, ...",
                             Otherwise{"a quarter to 64 times --global-batch"}};
};

struct PolicyArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<GoodputKind> goodput{
      this, "--goodput", one_of(kGoodputKinds),
      "what is maximised: plain (samples/s x efficiency) or lr-aware (x the root of the batch)",
      PolicyOptions().kind};
  Option<double> calibration{this, "--calibration", number(1e-3, 1e6),
                             "critical batch / gradient noise scale", PolicyOptions().calibration};
  DecisionArgs decisions{this, kAdapting};
  Option<std::string> fix{this, "--fix", text("PLAN|FILE"),
                          "parts of the plan that stay: zero=0,tp=1 or z0.tp1"};
};

// All but what is maximised and policy.adapt, which are left as they are where nothing is given.
Result<void> resolve_policy(const PolicyArgs& args, ControllerOptions& out);

// Two powers of two below the start and six above it.
BatchRange usual_batch_range(std::int64_t start);
Result<void> check_batch_range(const BatchRange& range, std::int64_t start);

}  // namespace copus
