#include "copus/goodput/calibration_belief.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "copus/base/check.h"

namespace copus {
namespace {

// The grid.
constexpr double kLowest = 0.03, kHighest = 500;
constexpr double kSpacing = 0.25;  // of ln c
constexpr std::array kSharpness = {1.0, 2.0};
constexpr std::array kSharpnessPrior = {0.7, 0.3};
constexpr double kPriorFreedom = 4;

// Losses have outliers: a prediction is off by a Student's t with so many degrees of freedom.
constexpr double kFreedom = 5;
// A block has this share of the samples so far, so that a run has some hundreds of them.
constexpr double kBlock = 0.01;
// The noise scale is smoothed over this share of the samples.
constexpr double kSmoothing = 0.15;
constexpr double kLeastDecay = 0.1;        // of the learning rate, that is still taken to lower c
constexpr double kFewestDifferences = 10;  // before the variance of the losses is known
constexpr double kVarianceWindow = 200;    // steps
constexpr double kMostDeviations = 3;      // of a difference, or it counts as that much
// The noise of consecutive losses is not quite independent, so it counts this many times.
constexpr double kInflation = 1.5;
// Before the first block: how wide the belief about the loss is, and the slope in nats.
constexpr double kWideLoss = 10, kSlope = 0.5, kWideSlope = 0.7;
constexpr std::int64_t kFewestBlocks = 5;  // before the slope is known

double square(double x) { return x * x; }

std::string kind_text(const CalibrationPrior& prior) {
  return prior.kind ? std::string(to_string(*prior.kind)) : "either";
}

}  // namespace

CalibrationBelief::CalibrationBelief(CalibrationPrior prior) : prior_(prior) {
  for (const GoodputKind kind : kGoodputKinds) {
    if (prior.kind && kind != *prior.kind) continue;
    for (std::size_t k = 0; k < kSharpness.size(); ++k) {
      for (double log_c = std::log(kLowest); log_c <= std::log(kHighest); log_c += kSpacing) {
        const double z = (log_c - std::log(prior.location)) / prior.scale;
        Hypothesis h;
        h.law = {std::exp(log_c), kSharpness.at(k), kind};
        h.log_weight = std::log(kSharpnessPrior.at(k)) -
                       (kPriorFreedom + 1) / 2 * std::log1p(z * z / kPriorFreedom);
        h.slope = kSlope;
        h.decay = prior.decay;
        h.loss2 = square(kWideLoss);
        h.slope2 = square(kWideSlope);
        h.decay2 = square(prior.decay_sd);
        grid_.push_back(h);
      }
    }
  }
}

void CalibrationBelief::observe(const LossReport& step) {
  const auto batch = static_cast<double>(step.batch);
  COPUS_CHECK(batch > 0 && step.gns > 0 && step.learning_rate > 0);
  COPUS_CHECK(std::isfinite(step.gns) && std::isfinite(step.loss) &&
              std::isfinite(step.learning_rate));
  const double rate_before = std::exchange(learning_rate_, step.learning_rate);
  if (step.learning_rate > rate_before * (1 + 1e-9)) {
    highest_rate_ = step.learning_rate;
    if (rate_before > 0) {  // warm-up
      forget_losses();
      return;
    }
  }
  if (last_batch_ > 0) {
    learn_variance(step);
    if (last_batch_ != step.batch) {
      close_block();
      change_batch(static_cast<double>(last_batch_), batch);
    }
    rate_change_ += std::log(step.learning_rate / rate_before);
  }
  last_loss_ = step.loss;
  last_batch_ = step.batch;
  samples_ += batch;
  log_gns_ += std::min(1.0, batch / (kSmoothing * samples_)) * (std::log(step.gns) - log_gns_);
  block_samples_ += batch;
  block_loss_ += batch * step.loss;
  if (block_samples_ >= kBlock * samples_) close_block();
}

void CalibrationBelief::forget_losses() {
  last_batch_ = 0;
  block_samples_ = block_loss_ = rate_change_ = 0;
  for (Hypothesis& h : grid_) {
    h.loss_slope = h.loss_decay = h.slope_decay = 0;
    h.loss2 = square(kWideLoss);
    h.slope2 = square(kWideSlope);
    h.decay2 = square(prior_.decay_sd);
  }
}

double CalibrationBelief::rate_factor() const {
  if (highest_rate_ <= 0) return 1;
  return std::pow(std::max(kLeastDecay, learning_rate_ / highest_rate_), prior_.rate_exponent);
}

void CalibrationBelief::learn_variance(const LossReport& step) {
  const double means = 1 / static_cast<double>(step.batch) + 1 / static_cast<double>(last_batch_);
  double variance = square(step.loss - last_loss_) / means;
  if (differences_ >= kFewestDifferences) {
    variance = std::min(variance, square(kMostDeviations) * variance_);
  }
  differences_ = std::min(differences_ + 1, kVarianceWindow);
  variance_ += (variance - variance_) / differences_;
}

void CalibrationBelief::close_block() {
  if (block_samples_ <= 0 || differences_ < kFewestDifferences) return;
  const double loss = block_loss_ / block_samples_;
  const double variance = kInflation * variance_ / block_samples_;
  // The mean loss of a block is that of its middle.
  advance_to(samples_ - block_samples_ / 2);
  double most = -std::numeric_limits<double>::infinity();
  for (Hypothesis& h : grid_) {
    correct(h, loss, variance);
    most = std::max(most, h.log_weight);
  }
  for (Hypothesis& h : grid_) h.log_weight -= most;
  drift(std::log2(samples_ / std::max(1.0, samples_ - block_samples_)));
  block_samples_ = block_loss_ = 0;
  ++blocks_;
}

// The laws differ in what the change does to the slope, and in nothing else. So a run that never
// changes its batch says nothing about them, whatever the shape of its losses.
void CalibrationBelief::change_batch(double from, double to) {
  if (at_ <= 0) {
    block_samples_ = block_loss_ = 0;  // too early: the next block begins with the new batch
    return;
  }
  ++changes_;
  advance_to(samples_);
  const double gns = std::exp(log_gns_) * rate_factor();
  for (Hypothesis& h : grid_) {
    const double factor = h.law.progress_per_sample(to, gns) / h.law.progress_per_sample(from, gns);
    h.slope *= factor;
    h.loss_slope *= factor;
    h.slope_decay *= factor;
    h.slope2 *= square(factor);
    h.loss2 += square(prior_.jump_sd * std::log(to / from));
  }
}

void CalibrationBelief::advance_to(double samples) {
  if (at_ > 0 && samples > at_) {
    const double u = std::log(samples / at_);
    for (Hypothesis& h : grid_) advance(h, u);
    rate_change_ = 0;
  }
  at_ = std::max(at_, samples);
}

// The prediction of an extended Kalman filter over u = ln(samples):
//   loss' = loss - slope u (1 - decay u/2),  slope' = slope (1 - decay u),  decay' = decay
void CalibrationBelief::advance(Hypothesis& h, double u) const {
  // The derivatives of the new state by the old one that are neither 0 nor 1.
  const double by_slope = -u * (1 - h.decay * u / 2), by_decay = h.slope * u * u / 2;
  const double kept = 1 - h.decay * u, slope_by_decay = -h.slope * u;
  const double slope_noise = square(h.slope) * (square(prior_.slope_sd) * u + square(rate_change_));
  h.loss += h.slope * by_slope;
  h.slope *= kept;

  const double loss_row = h.loss2 + by_slope * h.loss_slope + by_decay * h.loss_decay;
  const double loss_slope = h.loss_slope + by_slope * h.slope2 + by_decay * h.slope_decay;
  const double loss_decay = h.loss_decay + by_slope * h.slope_decay + by_decay * h.decay2;
  const double slope_row = kept * h.slope2 + slope_by_decay * h.slope_decay;
  const double slope_decay = kept * h.slope_decay + slope_by_decay * h.decay2;
  h.loss2 = loss_row + loss_slope * by_slope + loss_decay * by_decay;
  h.loss_slope = loss_slope * kept + loss_decay * slope_by_decay;
  h.loss_decay = loss_decay;
  // A change of the learning rate changes the slope by an unknown share of it.
  h.slope2 = slope_row * kept + slope_decay * slope_by_decay + slope_noise;
  h.slope_decay = slope_decay;
  h.decay2 += square(prior_.decay_drift_sd) * u;
}

// Corrects the state by a block's mean loss, and weighs the law by how well it predicted that.
void CalibrationBelief::correct(Hypothesis& h, double loss, double variance) const {
  const double surprise = loss - h.loss;
  const double expected = h.loss2 + variance;
  if (!(expected > 0)) return;  // all losses were the same
  const double z2 = square(surprise) / expected;
  h.log_weight += -std::log(expected) / 2 - (kFreedom + 1) / 2 * std::log1p(z2 / kFreedom);
  // What lies far out moves the state less.
  const double total = h.loss2 + variance * std::max(1.0, (kFreedom + z2) / (kFreedom + 1));
  const double on_slope = h.loss_slope / total, on_decay = h.loss_decay / total;
  h.slope += on_slope * surprise;
  h.decay += on_decay * surprise;
  h.slope2 -= on_slope * h.loss_slope;
  h.slope_decay -= on_slope * h.loss_decay;
  h.decay2 -= on_decay * h.loss_decay;
  h.loss += h.loss2 / total * surprise;
  const double left = 1 - h.loss2 / total;
  h.loss2 *= left;
  h.loss_slope *= left;
  h.loss_decay *= left;
}

// A random walk of ln c: each law passes a share of its weight to its neighbours.
void CalibrationBelief::drift(double doublings) {
  const double variance = square(prior_.drift_sd) * doublings;
  const double share = std::min(0.3, variance / (2 * square(kSpacing)));
  std::vector<double> before;
  for (const Hypothesis& h : grid_) before.push_back(std::exp(h.log_weight));
  std::vector<double> after = before;
  for (std::size_t i = 0; i + 1 < grid_.size(); ++i) {
    const bool neighbours = grid_[i].law.sharpness == grid_[i + 1].law.sharpness &&
                            grid_[i].law.kind == grid_[i + 1].law.kind;
    if (!neighbours) continue;
    after[i] += share * (before[i + 1] - before[i]);
    after[i + 1] += share * (before[i] - before[i + 1]);
  }
  constexpr double kTiny = 1e-300;
  for (std::size_t i = 0; i < grid_.size(); ++i) {
    grid_[i].log_weight = std::log(std::max(after[i], kTiny));
  }
}

std::vector<WeightedLaw> CalibrationBelief::laws() const {
  const double rate = rate_factor();
  std::vector<WeightedLaw> all;
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const Hypothesis& h : grid_) most = std::max(most, h.log_weight);
  for (const Hypothesis& h : grid_) {
    all.push_back({std::exp(h.log_weight - most), h.law});
    all.back().law.calibration *= rate;
    sum += all.back().weight;
  }
  for (WeightedLaw& law : all) law.weight /= sum;
  return all;
}

CalibrationBelief::Interval CalibrationBelief::calibration() const {
  std::vector<WeightedLaw> all = laws();
  std::sort(all.begin(), all.end(), [](const WeightedLaw& a, const WeightedLaw& b) {
    return a.law.calibration < b.law.calibration;
  });
  // A law stands for the calibrations within half a spacing of its own.
  const auto quantile = [&](double share) {
    double below = 0;
    for (std::size_t i = 0; i < all.size();) {
      const double c = all[i].law.calibration;
      double here = 0;
      for (; i < all.size() && all[i].law.calibration == c; ++i) here += all[i].weight;
      if (below + here >= share) return c * std::exp(kSpacing * ((share - below) / here - 0.5));
      below += here;
    }
    return all.back().law.calibration;
  };
  return {quantile(0.5), quantile(0.025), quantile(0.975)};
}

// The slope of a line through losses of n samples in all is known to sqrt(12 variance / n) over the
// line's length.
double CalibrationBelief::length_to_show(double log_sd) const {
  double slope = 0, sum = 0;
  for (const Hypothesis& h : grid_) {
    slope += std::exp(h.log_weight) * h.slope;
    sum += std::exp(h.log_weight);
  }
  if (blocks_ < kFewestBlocks || slope <= 0) return std::numeric_limits<double>::infinity();
  const double noise = std::sqrt(12 * kInflation * variance_ / samples_) / (slope / sum);
  return std::pow(noise / log_sd, 2.0 / 3);
}

Json CalibrationBelief::to_json() const {
  Json grid = Json::array();
  for (const Hypothesis& h : grid_) {
    grid.push_back({h.log_weight, h.loss, h.slope, h.decay, h.loss2, h.loss_slope, h.loss_decay,
                    h.slope2, h.slope_decay, h.decay2});
  }
  return {{"goodput", kind_text(prior_)},
          {"log_gns", log_gns_},
          {"learning_rate", learning_rate_},
          {"highest_rate", highest_rate_},
          {"variance", variance_},
          {"differences", differences_},
          {"last_loss", last_loss_},
          {"last_batch", last_batch_},
          {"samples", samples_},
          {"block_samples", block_samples_},
          {"block_loss", block_loss_},
          {"at", at_},
          {"rate_change", rate_change_},
          {"blocks", blocks_},
          {"changes", changes_},
          {"grid", std::move(grid)}};
}

Result<void> CalibrationBelief::restore(const Json& json, const std::string& where) {
  constexpr double kMost = std::numeric_limits<double>::max();
  constexpr std::int64_t kMostInteger = std::numeric_limits<std::int64_t>::max();
  FieldReader fields(json, where);
  const std::string kind = fields.text("goodput");
  CalibrationBelief read(prior_);
  read.log_gns_ = fields.number("log_gns", -kMost, kMost);
  read.learning_rate_ = fields.number("learning_rate", 0, kMost);
  read.highest_rate_ = fields.number("highest_rate", 0, kMost);
  read.variance_ = fields.number("variance", 0, kMost);
  read.differences_ = fields.number("differences", 0, kVarianceWindow);
  read.last_loss_ = fields.number("last_loss", -kMost, kMost);
  read.last_batch_ = fields.integer("last_batch", 0, kMostInteger);
  read.samples_ = fields.number("samples", 0, kMost);
  read.block_samples_ = fields.number("block_samples", 0, kMost);
  read.block_loss_ = fields.number("block_loss", -kMost, kMost);
  read.at_ = fields.number("at", 0, kMost);
  read.rate_change_ = fields.number("rate_change", -kMost, kMost);
  read.blocks_ = fields.integer("blocks", 0, kMostInteger);
  read.changes_ = fields.integer("changes", 0, kMostInteger);
  const Json& grid = fields.child("grid");
  fields.refuse_unknown();
  COPUS_TRY_VOID(fields.finish());
  if (kind != kind_text(prior_)) return {};
  if (!grid.is_array() || grid.size() != grid_.size()) {
    return field_error(where + ": grid", "want a list of {} laws", grid_.size());
  }
  for (std::size_t i = 0; i < grid_.size(); ++i) {
    Hypothesis& h = read.grid_[i];
    const std::array<double*, 10> values = {&h.log_weight,  &h.loss,       &h.slope,      &h.decay,
                                            &h.loss2,       &h.loss_slope, &h.loss_decay, &h.slope2,
                                            &h.slope_decay, &h.decay2};
    const Json& row = grid[i];
    const bool numbers =
        row.is_array() && row.size() == values.size() &&
        std::all_of(row.begin(), row.end(), [](const Json& value) { return value.is_number(); });
    if (!numbers) {
      return field_error(fmt::format("{}: grid[{}]", where, i), "want a list of {} numbers",
                         values.size());
    }
    for (std::size_t k = 0; k < values.size(); ++k) *values.at(k) = row[k].get<double>();
  }
  *this = std::move(read);
  return {};
}

}  // namespace copus
