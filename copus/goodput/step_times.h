// StepTimes: what a step takes, as the cost model predicts it and measured steps correct it.
//
// The belief is on a log scale. A measured step is the sum of its predicted parts (compute,
// tensor-parallel, pipeline, data-parallel, the rest), each times a factor of this machine, all
// times one factor that is common to every configuration, times a deviation of its layout and one
// of its configuration. The common factor is all but unknown before the first step: a machine that
// is slower than predicted throughout says nothing about its layouts. The factors of the parts and
// the deviations begin at 1 with a prior spread, and are conditioned on what is measured. How far
// layouts deviate is itself estimated from what the factors leave unexplained.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "copus/base/json.h"
#include "copus/goodput/candidates.h"

namespace copus {

struct StepTime {
  Seconds time;       // the median of the belief
  double log_sd = 0;  // of ln(time): of the belief, not of single steps
};

// Of one step time over another.
struct StepTimeRatio {
  double log_mean = 0;
  double log_sd = 0;
};

// One of the normal distributions that a belief on a log scale is a mixture of.
struct WeightedRatio {
  double weight = 1;  // all weights add up to 1
  StepTimeRatio ratio;
};

// Prior standard deviations of ln(factor).
struct StepTimeOptions {
  double common_sd = 10;
  double compute_sd = 0.4, tp_sd = 0.8, pipeline_sd = 0.6, dp_sd = 0.8, other_sd = 0.8;
  // Of a layout (tp, cp, pp, dp, ep, vp, zero, sp), and of a configuration within its layout
  // (batch, micro-batch, …). Both are only where the estimate of these spreads begins.
  double layout_sd = 0.08;
  double configuration_sd = 0.02;
  // Relative spread of one step, until steps have shown theirs, and how many steps of one
  // configuration may count as independent.
  double step_sd = 0.1;
  double most_steps = 30;
};

// Not safe for use from several threads: beliefs are computed when they are asked for.
class StepTimes {
 public:
  explicit StepTimes(StepTimeOptions options = {}) : options_(options) {}

  // One measured step; counts as 1e-9 to 1e9 seconds.
  void observe(const Candidate& at, Seconds time);
  // How many steps of this configuration were measured.
  std::int64_t measured_steps(const Configuration& at) const;
  // The median of the recent steps of this configuration; nothing if none was measured. Unlike a
  // belief it costs next to nothing.
  std::optional<Seconds> recent(const Configuration& at) const;
  // Whether a step of this layout was measured, at any batch.
  bool knows_layout(const ParallelPlan& plan) const;

  StepTime believe(const Candidate& at) const;
  // The believed time of a step of `a` over that of `b`. What the two share cancels: however
  // uncertain both are, two batches of one layout may be compared well.
  StepTimeRatio ratio(const Candidate& a, const Candidate& b) const;
  // The same with its tails. ratio() has the mixture's mean, and the weighted mean of its parts'
  // root mean square distances from it, in which tails count less than in a standard deviation.
  std::vector<WeightedRatio> ratio_mixture(const Candidate& a, const Candidate& b) const;

  // What was measured, for a run that continues. restore() leaves out configurations that are not
  // among `candidates`.
  Json to_json() const;
  Result<void> restore(const Json& json, const std::string& where,
                       const std::vector<Candidate>& candidates);

 private:
  struct Measured {
    Candidate at;
    std::int64_t steps = 0;
    std::vector<double> recent;  // seconds; a bounded window, on whose median the belief rests
  };
  struct Belief;  // conditioned on what is measured
  const Belief& belief() const;

  StepTimeOptions options_;
  std::map<std::string, Measured> measured_;      // by to_text(configuration)
  mutable std::shared_ptr<const Belief> belief_;  // null: something was measured since
};

}  // namespace copus
