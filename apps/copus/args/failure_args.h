// copus train's options for what goes wrong: restarts, stalls, bad steps.
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
      "how often ranks that failed are started again, from the last checkpoint",
      RestartOptions().max_restarts,
      InFile::kGiven};
  Option<std::int64_t> elastic{
      this,
      "--elastic",
      or_bare(integer(1, kMostRanks), "1"),
      "go on without ranks that died or hung, down to so many (1 where none are given), at the "
      "plan that is predicted to be best for those left",
      Otherwise{"as many as before"},
      InFile::kGiven};
  Option<Seconds> grace{this,
                        "--grace",
                        duration(Seconds(86400), "a day at most"),
                        "from a signal to the end by force: time to save",
                        Seconds(600),
                        InFile::kGiven};
  Option<OnBadStep> on_bad_step{
      this, "--on-bad-step", one_of(kOnBadSteps),
      "at a loss or gradient that is not finite, or a spike: stop, skip (leave the samples out) or "
      "rollback (to the last checkpoint, and leave them out)",
      BadStepOptions().action};
  Option<double> spike{this, "--spike", number(1, 1e6),
                       "a loss so many robust deviations above its running median is a bad step",
                       Otherwise{"never"}};
  Option<double> norm_spike{this, "--norm-spike", number(1, 1e6),
                            "a gradient norm so many times its running median is a bad step",
                            Otherwise{"never"}};
  Option<std::int64_t> max_bad_steps{this,
                                     "--max-bad-steps",
                                     integer(0, kManyTimes),
                                     "bad steps skipped in a row at most",
                                     BadStepOptions().most_in_a_row,
                                     InFile::kGiven};
  Option<std::int64_t> max_rollbacks{this,
                                     "--max-rollbacks",
                                     integer(0, kManyTimes),
                                     "rollbacks in one run at most",
                                     BadStepOptions().most_rollbacks,
                                     InFile::kGiven};
};

Result<RestartOptions> resolve_restarts(const FailureArgs& args, int ranks);
BadStepOptions resolve_bad_steps(const FailureArgs& args);

}  // namespace copus
