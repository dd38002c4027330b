// StepTimes: what a step takes, as the cost model predicts it and measured steps correct it.
//
// A measured step is the sum of its predicted parts (compute, tensor-parallel, pipeline,
// data-parallel, the rest), each times a factor of this machine, and a deviation of its own layout
// and one of its own configuration. Factors and deviations start at what the model says, with a
// prior spread, and are conditioned on what is measured (Bayesian linear regression). So what is
// learned in one layout carries over to those that share its parts, as far as they share them, and
// a layout never measured stays uncertain.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "copus/goodput/candidates.h"

namespace copus {

struct StepTime {
  Seconds time;
  double relative_sd = 0;  // of the belief, not of single steps
};

struct StepTimeOptions {
  // Prior spread of each part's factor around 1, of a layout's own deviation (tp, cp, pp, dp, ep,
  // vp, zero, sp), and of a configuration's within its layout (batch, micro-batch, …).
  double compute_sd = 0.4, tp_sd = 0.8, pipeline_sd = 0.6, dp_sd = 0.8, other_sd = 0.8;
  double layout_sd = 0.08;
  double configuration_sd = 0.02;
  // A step's measured time: relative spread of one step, and how many steps may count as
  // independent.
  double step_sd = 0.1;
  double most_steps = 30;
};

class StepTimes {
 public:
  explicit StepTimes(StepTimeOptions options = {}) : options_(options) {}

  // One measured step.
  void observe(const Candidate& at, Seconds time);
  StepTime believe(const Candidate& at) const;
  // Relative spread of the believed ratio of two step times. What the two share cancels: however
  // uncertain both are, two batches of one layout may be compared well.
  double ratio_sd(const Candidate& a, const Candidate& b) const;

 private:
  struct Measured {
    Candidate at;
    std::int64_t steps = 0;
    std::vector<double> recent;  // seconds; a bounded window, on whose median the belief rests
  };
  // All in units of the prediction.
  double prior_covariance(const Candidate& a, const Candidate& b) const;
  std::vector<double> covariances(const Candidate& at) const;  // prior, with each that was measured
  double covariance(const Candidate& a, const Candidate& b) const;
  double mean(const Candidate& at) const;
  void condition();

  StepTimeOptions options_;
  std::map<std::string, Measured> measured_;  // by to_text(configuration)
  // The mean of measured over predicted: deviations are as large as the machine is slow.
  double scale_ = 1;
  // Of n measured configurations, in the order of measured_: the inverse of the covariance of their
  // medians (n x n), and that times what the medians are off.
  std::vector<double> precision_, weights_;
};

}  // namespace copus
