// CalibrationBelief: what a run's own losses say about its critical batch.
//
// The critical batch is taken to be a multiple c of the noise scale. Nobody knows c beforehand:
// published values lie between 0.1 and 100. But each c says what a change of the batch does to the
// progress per sample, and so to the slope of the loss, which is smooth otherwise. So each c of a
// grid has a filter that predicts the next loss from the losses so far, and what it predicts wrong
// counts against it. docs/controller.md derives it.
//
// Pure arithmetic, without clock or tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/goodput/efficiency.h"

namespace copus {

// What is believed before the first loss, and how smooth losses are.
struct CalibrationPrior {
  // The kind of Goodput that the losses follow; nothing: either may be true.
  std::optional<GoodputKind> kind;
  // ln c ~ Student's t with four degrees of freedom around ln(location). The published values for
  // language models under Adam give these.
  double location = 3.3, scale = 1.2;
  // c drifts, by this standard deviation of ln c per doubling of the samples.
  double drift_sd = 0.4;
  // Where the learning rate decays, c falls with this power of it, down to a tenth of the rate.
  double rate_exponent = 0.45;
  // At one batch the loss falls by s per unit of ln(samples), and s decays at about this rate. The
  // last two are how far s (relative) and its rate stray per unit of ln(samples).
  double decay = 0, decay_sd = 0.7;
  double slope_sd = 0.1, decay_drift_sd = 0.3;
  // A change of batch changes the temperature of the weights, and so the loss, by about this much
  // per unit of ln(batch). That is no progress.
  double jump_sd = 0.02;
};

// What one step shows.
struct LossReport {
  std::int64_t batch = 0;    // samples of this step
  double loss = 0;           // their mean
  double gns = 0;            // the noise scale, as it is estimated now
  double learning_rate = 1;  // the schedule's, relative to its peak, without the batch's factor
};

class CalibrationBelief {
 public:
  explicit CalibrationBelief(CalibrationPrior prior = {});

  // Steps during which the learning rate rises are left out. REQUIRES: batch, gns and learning_rate
  // are above 0, all are finite.
  void observe(const LossReport& step);
  // The next loss does not go on from the last one. What was learned stays.
  void forget_losses();
  // How often the batch has changed while losses were known. Before the first change the belief is
  // the prior, but for its drift.
  std::int64_t changes() const { return changes_; }

  // The belief, at the present learning rate.
  std::vector<WeightedLaw> laws() const;

  struct Interval {
    double median = 0, low = 0, high = 0;  // 2.5% lie below `low`, and above `high`
  };
  Interval calibration() const;

  // How long a change of batch has to last, relative to the run so far, until the losses show its
  // effect: a factor on the progress per sample, whose logarithm is then known to this standard
  // deviation. Infinite while too little is known. REQUIRES: log_sd > 0.
  double length_to_show(double log_sd) const;

  // The whole state. A belief that was saved and loaded continues exactly as before. One of another
  // kind of Goodput is not taken over.
  Json to_json() const;
  Result<void> restore(const Json& json, const std::string& where);

 private:
  // One law and what it makes of the losses.
  struct Hypothesis {
    BatchLaw law;
    double log_weight = 0;
    // The filter's state and its covariance: the loss, its fall per unit of ln(samples), and the
    // rate at which that decays.
    double loss = 0, slope = 0, decay = 0;
    double loss2 = 0, loss_slope = 0, loss_decay = 0, slope2 = 0, slope_decay = 0, decay2 = 0;
  };
  double rate_factor() const;  // on c, by the decay of the learning rate
  void learn_variance(const LossReport& step);
  void close_block();
  void change_batch(double from, double to);
  void advance_to(double samples);
  void advance(Hypothesis& h, double u) const;
  void correct(Hypothesis& h, double loss, double variance) const;
  void drift(double doublings);

  CalibrationPrior prior_;
  std::vector<Hypothesis> grid_;  // by kind, then sharpness, then calibration
  double log_gns_ = 0;            // smoothed
  double learning_rate_ = 0;      // of the last step
  double highest_rate_ = 0;       // since it last rose
  // The variance of single samples' losses, from the differences of consecutive steps.
  double variance_ = 0, differences_ = 0;
  double last_loss_ = 0;
  std::int64_t last_batch_ = 0;  // 0: there was no step yet
  double samples_ = 0;
  // The block of steps of one batch that is being filled.
  double block_samples_ = 0, block_loss_ = 0;
  double at_ = 0;           // the samples that the filters have come to; 0: none
  double rate_change_ = 0;  // of ln(learning rate), since then
  std::int64_t blocks_ = 0, changes_ = 0;
};

}  // namespace copus
