// BadSteps: which steps must not change a weight, and what to do about them.
//
// The verdicts depend on the losses and norms alone. Every rank has a BadSteps and gives it the
// same sums over all ranks, so all ranks decide alike without a message.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "copus/base/result.h"
#include "copus/spec/run_modes.h"

namespace copus {

struct BadStepOptions {
  OnBadStep action = OnBadStep::kStop;
  // A loss is a spike if it is more than this many robust standard deviations (1.4826 times the
  // median absolute deviation) above the median of recent losses. 0: never. Off by default: the
  // rule may leave out samples that are only hard to learn, and so change a healthy run.
  double loss_spike = 0;
  // A gradient norm is a spike if it is more than this many times its median. 0: never.
  double norm_spike = 0;
  std::int64_t most_in_a_row = 10;  // skipped steps in a row; one more ends the run
  std::int64_t most_rollbacks = 3;  // from one start of the program to its end
};

class BadSteps {
 public:
  // The medians are those of the last kWindow good steps. No step is a spike before there are
  // kEnough good steps.
  static constexpr std::size_t kWindow = 128, kEnough = 32;

  explicit BadSteps(const BadStepOptions& options) : options_(options) {}

  // Returns why a step with this loss and norm must not change the weights. Returns "" if the step
  // is good; then its loss and norm enter the medians.
  std::string judge(double loss, double grad_norm);

  // Returns what to do about the bad step that judge() found last. The error says why the run must
  // end: too many bad steps in a row, or too many rollbacks.
  Result<OnBadStep> act(const std::string& why);

  const BadStepOptions& options() const { return options_; }

 private:
  BadStepOptions options_;
  std::deque<double> losses_, norms_;  // of the last good steps
  std::int64_t in_a_row_ = 0, rollbacks_ = 0;
};

}  // namespace copus
