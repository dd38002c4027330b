// StepTimes: what a step takes, as the cost model predicts it and measured steps correct it.
//
// A measured step is the sum of its predicted parts (compute, tensor-parallel, pipeline,
// data-parallel, the rest), each times a factor of this machine, and a deviation of its own layout.
// Factors and deviations start at what the model says, with a prior spread, and are conditioned on
// what is measured (Bayesian linear regression). So what is learned in one layout carries over to
// those that share its parts, as far as they share them, and a layout never measured stays
// uncertain.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "copus/goodput/candidates.h"

namespace copus {

struct StepTime {
  double seconds = 0;
  double relative_sd = 0;  // of the belief, not of single steps
};

struct StepTimeOptions {
  // Prior spread of each part's factor around 1, and of a layout's own deviation.
  double compute_sd = 0.4, tp_sd = 0.8, pipeline_sd = 0.6, dp_sd = 0.8, other_sd = 0.8;
  double layout_sd = 0.08;
  // A step's measured time: relative spread of one step, and how many steps may count as
  // independent.
  double step_sd = 0.1;
  double most_steps = 30;
};

class StepTimes {
 public:
  explicit StepTimes(StepTimeOptions options = {});

  // One measured step.
  void observe(const Candidate& at, double seconds);
  StepTime believe(const Candidate& at) const;
  // Steps observed in exactly this configuration.
  std::int64_t steps(const Configuration& at) const;

 private:
  struct Measured {
    Candidate at;
    std::int64_t steps = 0;
    std::vector<double> recent;  // a bounded window: its median is what the belief is conditioned on
  };
  void condition() const;

  StepTimeOptions options_;
  std::map<std::string, Measured> measured_;  // by to_text(configuration)
  // The posterior, recomputed when asked for after a change.
  mutable bool stale_ = false;
  mutable std::vector<std::string> layouts_;      // those with a deviation of their own
  mutable std::vector<double> mean_, covariance_;  // parts first, then layouts
};

}  // namespace copus
