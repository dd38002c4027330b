// copus train's options for failures: restarts, stalls, bad steps.
#pragma once

#include "copus/args/option.h"
#include "copus/train/health/bad_step.h"
#include "copus/train/launch/restarts.h"

namespace copus {

struct FailureArgs : OptionGroup {
  static constexpr std::int64_t kManyTimes = 1'000'000;
  static constexpr std::int64_t kMostRanks = 4096;

  using OptionGroup::OptionGroup;
  Option<std::int64_t> max_restarts{
      this,
      "--max-restarts",
      integer(0, kManyTimes),
      "how often failed ranks are restarted, from the last checkpoint",
      RestartOptions().max_restarts,
      InFile::kGiven};
  Option<std::int64_t> elastic{
      this,
      "--elastic",
      or_bare(integer(1, kMostRanks), "1"),
      "continue without ranks that died or hung, down to N ranks (1 if N is left out), at the plan "
      "predicted to be fastest for the ranks left",
      Otherwise{"off: --max-restarts restarts all ranks"},
      InFile::kGiven};
  Option<Seconds> grace{this,
                        "--grace",
                        duration(Seconds(86400), "a day at most"),
                        "time to save after a signal, before the ranks are killed",
                        Seconds(600),
                        InFile::kGiven};
  Option<OnBadStep> on_bad_step{
      this, "--on-bad-step", one_of(kOnBadSteps),
      "what to do when a loss or gradient is not finite, or spikes: stop; skip its samples; "
      "rollback to the last checkpoint, then skip them",
      BadStepOptions().action};
  Option<double> spike{
      this, "--spike", number(1, 1e6),
      "a step is bad if its loss is more than X x 1.4826 median absolute deviations above the "
      "median of the last 128 good steps",
      Otherwise{"never"}};
  Option<double> norm_spike{
      this, "--norm-spike", number(1, 1e6),
      "a step is bad if its gradient norm is more than X times the median of the last 128 good "
      "steps",
      Otherwise{"never"}};
  Option<std::int64_t> max_bad_steps{this,
                                     "--max-bad-steps",
                                     integer(0, kManyTimes),
                                     "most bad steps to skip in a row",
                                     BadStepOptions().most_in_a_row,
                                     InFile::kGiven};
  Option<std::int64_t> max_rollbacks{this,
                                     "--max-rollbacks",
                                     integer(0, kManyTimes),
                                     "most rollbacks between two starts of the run; one more ends "
                                     "it",
                                     BadStepOptions().most_rollbacks,
                                     InFile::kGiven};
};

Result<RestartOptions> resolve_restarts(const FailureArgs& args, int ranks);
BadStepOptions resolve_bad_steps(const FailureArgs& args);

}  // namespace copus
