// The regression in its dual form (Rasmussen and Williams 2006, section 2.1.2): instead of the
// factors' posterior, the covariance that they give any two configurations' step times. Deviations
// then need no bookkeeping, and any two beliefs have a joint spread.
#include "copus/goodput/step_times.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "copus/base/median.h"

namespace copus {
namespace {

constexpr std::size_t kWindow = 30;  // steps
constexpr double kFloor = 0.05;      // of the prediction: no step is believed to take less

// Shares of the predicted step; they add up to 1.
std::array<double, 5> shares(const StepBreakdown& p) {
  const Seconds total = p.total();
  return {(p.compute + p.recompute) / total, p.tp / total, p.pipeline / total, p.dp / total,
          (p.cp + p.ep + p.optimizer + p.overhead) / total};
}

bool same_layout(const ParallelPlan& a, const ParallelPlan& b) {
  return std::tie(a.tp, a.cp, a.pp, a.dp, a.ep, a.vp, a.zero, a.sp) ==
         std::tie(b.tp, b.cp, b.pp, b.dp, b.ep, b.vp, b.zero, b.sp);
}

using Vector = Eigen::Map<const Eigen::VectorXd>;

Vector as_vector(const std::vector<double>& values) {
  return {values.data(), static_cast<Eigen::Index>(values.size())};
}

}  // namespace

void StepTimes::observe(const Candidate& at, Seconds time) {
  Measured& measured = measured_[to_text(at.at)];
  measured.at = at;
  ++measured.steps;
  measured.recent.push_back(time.v);
  if (measured.recent.size() > kWindow) measured.recent.erase(measured.recent.begin());
  condition();
}

StepTime StepTimes::believe(const Candidate& at) const {
  const double factor = mean(at);
  return {factor * at.predicted.total(), std::sqrt(covariance(at, at)) / factor};
}

double StepTimes::ratio_sd(const Candidate& a, const Candidate& b) const {
  const double mean_a = mean(a), mean_b = mean(b);
  // First order in the spreads.
  const double variance = covariance(a, a) / (mean_a * mean_a) +
                          covariance(b, b) / (mean_b * mean_b) -
                          2 * covariance(a, b) / (mean_a * mean_b);
  return std::sqrt(std::max(0.0, variance));
}

double StepTimes::prior_covariance(const Candidate& a, const Candidate& b) const {
  const std::array<double, 5> sds = {options_.compute_sd, options_.tp_sd, options_.pipeline_sd,
                                     options_.dp_sd, options_.other_sd};
  const std::array<double, 5> of_a = shares(a.predicted), of_b = shares(b.predicted);
  double sum = 0;
  for (std::size_t part = 0; part < sds.size(); ++part) {
    sum += sds[part] * sds[part] * of_a[part] * of_b[part];
  }
  double deviation = 0;
  if (same_layout(a.at.plan, b.at.plan)) deviation += options_.layout_sd * options_.layout_sd;
  if (a.at == b.at) deviation += options_.configuration_sd * options_.configuration_sd;
  return sum + scale_ * scale_ * deviation;
}

std::vector<double> StepTimes::covariances(const Candidate& at) const {
  std::vector<double> all;
  all.reserve(measured_.size());
  for (const auto& [name, measured] : measured_) all.push_back(prior_covariance(at, measured.at));
  return all;
}

double StepTimes::covariance(const Candidate& a, const Candidate& b) const {
  const double prior = prior_covariance(a, b);
  const std::vector<double> with_a = covariances(a), with_b = covariances(b);
  const auto n = static_cast<Eigen::Index>(measured_.size());
  const Eigen::Map<const Eigen::MatrixXd> precision(precision_.data(), n, n);
  const double known = as_vector(with_a).dot(precision * as_vector(with_b));
  // What rounding leaves of a spread is not below 0.
  return a.at == b.at ? std::max(0.0, prior - known) : prior - known;
}

double StepTimes::mean(const Candidate& at) const {
  return std::max(kFloor, 1 + as_vector(covariances(at)).dot(as_vector(weights_)));
}

void StepTimes::condition() {
  const auto n = static_cast<Eigen::Index>(measured_.size());
  Eigen::VectorXd ratio(n);
  Eigen::Index row = 0;
  for (const auto& [name, measured] : measured_) {
    ratio(row++) = median(measured.recent) / measured.at.predicted.total().v;
  }
  scale_ = ratio.mean();
  Eigen::MatrixXd spread(n, n);
  row = 0;
  for (const auto& [name, measured] : measured_) {
    spread.row(row) = as_vector(covariances(measured.at));
    // A step's spread is in proportion to what it takes, not to what was predicted.
    const double step_sd = ratio(row) * options_.step_sd;
    const double steps = std::min(static_cast<double>(measured.steps), options_.most_steps);
    spread(row, row) += step_sd * step_sd / steps;
    ++row;
  }
  const Eigen::LLT<Eigen::MatrixXd> factored(spread);
  const Eigen::MatrixXd precision = factored.solve(Eigen::MatrixXd::Identity(n, n));
  const Eigen::VectorXd weights = factored.solve((ratio.array() - 1).matrix());
  precision_.assign(precision.data(), precision.data() + precision.size());
  weights_.assign(weights.data(), weights.data() + weights.size());
}

}  // namespace copus
