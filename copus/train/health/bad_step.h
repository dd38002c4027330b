// BadSteps: which steps must not change a weight, and what to do about them.
//
// Pure: the same losses and norms give the same verdicts. Every rank has one and feeds it the sums
// that all ranks share, so all decide alike without a message.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "copus/base/result.h"
#include "copus/spec/run_modes.h"

namespace copus {

struct BadStepOptions {
  OnBadStep action = OnBadStep::kStop;
  // The loss is a spike when it is above the median of late by more than so many robust standard
  // deviations (1.4826 times the median absolute deviation). 0: never. Off unless asked for: a rule
  // that leaves out what is only hard to learn changes the result of a healthy run.
  double loss_spike = 0;
  // The gradient norm is one when it is so many times its median. 0: never.
  double norm_spike = 0;
  std::int64_t most_in_a_row = 10;  // skipped steps; one more ends the run
  std::int64_t most_rollbacks = 3;  // in one start of the program
};

class BadSteps {
 public:
  // Medians are of the last kWindow good steps; before kEnough there is no such thing as a spike.
  static constexpr std::size_t kWindow = 128, kEnough = 32;

  explicit BadSteps(const BadStepOptions& options) : options_(options) {}

  // Why a step with these must not change the weights; empty: it is good, and remembered.
  std::string judge(double loss, double grad_norm);

  // What to do about a bad step that was judged last. An error: enough is enough, and why.
  Result<OnBadStep> act(const std::string& why);

  const BadStepOptions& options() const { return options_; }

 private:
  BadStepOptions options_;
  std::deque<double> losses_, norms_;  // of good steps
  std::int64_t in_a_row_ = 0, rollbacks_ = 0;
};

}  // namespace copus
