// With factors exp(theta), a step takes f(theta) = exp(theta_0) x sum over parts of share x
// exp(theta_part), in units of its prediction. ln f is not linear in theta, so theta is set to its
// most probable value by Gauss-Newton, and ln f is linearised there (Laplace's approximation).
// Everything else is Gaussian regression in its dual form (Rasmussen and Williams 2006, section
// 2.1.2): instead of the deviations' posterior, the covariance that they give any two
// configurations. Deviations then need no bookkeeping, and any two beliefs have a joint spread.
//
// How far layouts deviate, and whether the factors of the parts are further off than their prior
// says, are two more unknowns. A small grid over both, weighted by how well each point explains
// what was measured, gives beliefs the heavy tails that they need.
#include "copus/goodput/step_times.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "copus/base/median.h"

namespace copus {
namespace {

constexpr std::size_t kWindow = 30;  // steps
constexpr int kParts = 5;
constexpr int kFactors = 1 + kParts;       // the common one, then those of the parts
constexpr double kMostFactor = 30;         // |ln| of a factor; no machine is further off
constexpr double kNegligible = 0.01;       // a grid point below this share of the best is left out
constexpr double kStepsOfPrior = 4;        // measured steps that the prior step_sd counts as
constexpr double kMedianVariance = 1.571;  // of a median over that of a mean (pi/2), normal noise

// The grid: multiples of layout_sd and configuration_sd, and of the standard deviations of the
// parts, each with its prior probability.
struct Spread {
  double times;
  double probability;
};
constexpr std::array<Spread, 6> kLayoutSpreads = {
    {{0.25, 0.10}, {0.5, 0.20}, {1, 0.30}, {2, 0.20}, {4, 0.12}, {8, 0.08}}};
constexpr std::array<Spread, 3> kPartSpreads = {{{0.25, 0.35}, {1, 0.60}, {3, 0.05}}};

using Factors = Eigen::Matrix<double, kFactors, 1>;

// Shares of the predicted step; they add up to 1.
std::array<double, kParts> shares(const StepBreakdown& p) {
  const Seconds total = p.total();
  return {(p.compute + p.recompute) / total, p.tp / total, p.pipeline / total, p.dp / total,
          (p.cp + p.ep + p.optimizer + p.overhead) / total};
}

// ln f and its gradient.
struct Linear {
  double value = 0;
  Factors slope = Factors::Zero();
};
Linear log_step(const Candidate& at, const Factors& theta) {
  const std::array<double, kParts> share = shares(at.predicted);
  const double largest = theta.tail<kParts>().maxCoeff();
  Linear line;
  double sum = 0;
  for (int part = 0; part < kParts; ++part) {
    const double term = share[static_cast<std::size_t>(part)] * std::exp(theta(1 + part) - largest);
    line.slope(1 + part) = term;
    sum += term;
  }
  line.slope /= sum;
  line.slope(0) = 1;
  line.value = theta(0) + largest + std::log(sum);
  return line;
}

bool same_layout(const ParallelPlan& a, const ParallelPlan& b) {
  return std::tie(a.tp, a.cp, a.pp, a.dp, a.ep, a.etp, a.vp, a.zero, a.sp) ==
         std::tie(b.tp, b.cp, b.pp, b.dp, b.ep, b.etp, b.vp, b.zero, b.sp);
}

}  // namespace

// The regression at each point of the grid.
struct StepTimes::Belief {
  struct Point {
    double weight = 0;
    Factors theta, variance;  // most probable value; prior variances
    double layout_var = 0, configuration_var = 0;
    // Of the n measured configurations: the gradient of ln f (n x factors), the inverse of the
    // covariance of their medians, and that times what the medians are off.
    Eigen::MatrixXd slopes, precision;
    Eigen::VectorXd weights;
  };
  std::vector<Candidate> at;  // what was measured
  std::vector<Point> points;

  Belief(const StepTimeOptions& options, const std::map<std::string, Measured>& measured);

  double deviation(const Point& point, const Candidate& a, const Candidate& b) const {
    return (same_layout(a.at.plan, b.at.plan) ? point.layout_var : 0) +
           (a.at == b.at ? point.configuration_var : 0);
  }
  // Prior covariances of a configuration with each that was measured.
  Eigen::VectorXd with_measured(const Point& point, const Candidate& a,
                                const Factors& slope) const {
    Eigen::VectorXd all = point.slopes * point.variance.cwiseProduct(slope);
    for (std::size_t i = 0; i < at.size(); ++i) {
      all(static_cast<Eigen::Index>(i)) += deviation(point, a, at[i]);
    }
    return all;
  }
  Point fit(const StepTimeOptions& options, const Spread& layouts, const Spread& parts,
            const Eigen::VectorXd& ratio, const Eigen::VectorXd& noise) const;
};

StepTimes::Belief::Belief(const StepTimeOptions& options,
                          const std::map<std::string, Measured>& measured) {
  const auto n = static_cast<Eigen::Index>(measured.size());
  Eigen::VectorXd ratio(n), noise(n);
  for (const auto& [name, each] : measured) {
    const auto row = static_cast<Eigen::Index>(at.size());
    const double middle = median(each.recent);
    std::vector<double> off;
    for (const double seconds : each.recent) off.push_back(std::abs(std::log(seconds / middle)));
    // 1.4826 x the median deviation is the standard deviation of normal noise.
    const double seen = 1.4826 * median(off);
    const auto counted = static_cast<double>(each.recent.size());
    const double variance =
        (kStepsOfPrior * options.step_sd * options.step_sd + counted * seen * seen) /
        (kStepsOfPrior + counted);
    const double steps = std::min(static_cast<double>(each.steps), options.most_steps);
    ratio(row) = std::log(middle / each.at.predicted.total().v);
    noise(row) = kMedianVariance * variance / steps;
    at.push_back(each.at);
  }
  std::vector<Point> all;
  double best = -std::numeric_limits<double>::infinity();
  for (const Spread& layouts : kLayoutSpreads) {
    for (const Spread& parts : kPartSpreads) {
      all.push_back(fit(options, layouts, parts, ratio, noise));
      best = std::max(best, all.back().weight);
    }
  }
  double sum = 0;
  for (Point& point : all) {
    point.weight = std::exp(point.weight - best);  // was a logarithm
    if (point.weight < kNegligible) continue;
    sum += point.weight;
    points.push_back(std::move(point));
  }
  for (Point& point : points) point.weight /= sum;
}

StepTimes::Belief::Point StepTimes::Belief::fit(const StepTimeOptions& options,
                                                const Spread& layouts, const Spread& parts,
                                                const Eigen::VectorXd& ratio,
                                                const Eigen::VectorXd& noise) const {
  const auto n = static_cast<Eigen::Index>(at.size());
  Point point;
  point.weight = std::log(layouts.probability * parts.probability);
  const double sds[kFactors] = {options.common_sd,   options.compute_sd, options.tp_sd,
                                options.pipeline_sd, options.dp_sd,      options.other_sd};
  for (int k = 0; k < kFactors; ++k) {
    point.variance(k) = sds[k] * sds[k] * (k == 0 ? 1 : parts.times * parts.times);
  }
  point.layout_var = std::pow(layouts.times * options.layout_sd, 2);
  point.configuration_var = std::pow(layouts.times * options.configuration_sd, 2);
  point.theta = Factors::Zero();
  point.slopes = Eigen::MatrixXd(n, kFactors);
  if (n == 0) return point;

  Eigen::MatrixXd scatter(n, n);  // of what the factors leave unexplained
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j < n; ++j) {
      scatter(i, j) =
          deviation(point, at[static_cast<std::size_t>(i)], at[static_cast<std::size_t>(j)]);
    }
    scatter(i, i) += noise(i);
  }
  const Eigen::LLT<Eigen::MatrixXd> factored_scatter(scatter);
  Eigen::VectorXd off(n);  // at theta, from the measured
  const auto linearise = [&](const Factors& theta) {
    for (Eigen::Index i = 0; i < n; ++i) {
      const Linear line = log_step(at[static_cast<std::size_t>(i)], theta);
      off(i) = ratio(i) - line.value;
      point.slopes.row(i) = line.slope;
    }
  };
  // Twice the negative logarithm of the posterior density, but for a constant.
  const auto cost = [&](const Factors& theta) {
    linearise(theta);
    return off.dot(factored_scatter.solve(off)) +
           theta.cwiseProduct(theta).cwiseQuotient(point.variance).sum();
  };
  // What the medians are off if the prior is linearised at theta.
  const auto target = [&] { return Eigen::VectorXd(off + point.slopes * point.theta); };
  double last = cost(point.theta);
  for (int round = 0; round < 30; ++round) {
    // In the space of the few factors, not of the many configurations.
    const Eigen::MatrixXd weighed = factored_scatter.solve(point.slopes);
    Eigen::Matrix<double, kFactors, kFactors> information = point.slopes.transpose() * weighed;
    information.diagonal() += point.variance.cwiseInverse();
    const Factors there = information.llt().solve(weighed.transpose() * target());
    const Factors step = there - point.theta;
    double length = 1, next = cost(point.theta + step);
    while (!(next <= last) && length > 1e-3) {
      length /= 2;
      next = cost(point.theta + length * step);
    }
    if (!(next <= last)) {
      linearise(point.theta);
      break;
    }
    point.theta = (point.theta + length * step).cwiseMax(-kMostFactor).cwiseMin(kMostFactor);
    const double gained = last - next;
    last = next;
    if (gained < 1e-9 * (1 + last)) break;
  }
  linearise(point.theta);
  const Eigen::LLT<Eigen::MatrixXd> factored(
      point.slopes * point.variance.asDiagonal() * point.slopes.transpose() + scatter);
  const Eigen::VectorXd values = target();
  point.weights = factored.solve(values);
  point.precision = factored.solve(Eigen::MatrixXd::Identity(n, n));
  const Eigen::MatrixXd lower = factored.matrixL();
  point.weight -= 0.5 * values.dot(point.weights) + lower.diagonal().array().log().sum();
  return point;
}

void StepTimes::observe(const Candidate& at, Seconds time) {
  Measured& measured = measured_[to_text(at.at)];
  measured.at = at;
  ++measured.steps;
  measured.recent.push_back(std::clamp(time.v, 1e-9, 1e9));
  if (measured.recent.size() > kWindow) measured.recent.erase(measured.recent.begin());
  belief_.reset();
}

std::int64_t StepTimes::measured_steps(const Configuration& at) const {
  const auto found = measured_.find(to_text(at));
  return found == measured_.end() ? 0 : found->second.steps;
}

std::optional<Seconds> StepTimes::recent(const Configuration& at) const {
  const auto found = measured_.find(to_text(at));
  if (found == measured_.end()) return std::nullopt;
  return Seconds(median(found->second.recent));
}

bool StepTimes::knows_layout(const ParallelPlan& plan) const {
  return std::any_of(measured_.begin(), measured_.end(),
                     [&](const auto& entry) { return same_layout(entry.second.at.at.plan, plan); });
}

const StepTimes::Belief& StepTimes::belief() const {
  if (!belief_) belief_ = std::make_shared<const Belief>(options_, measured_);
  return *belief_;
}

StepTime StepTimes::believe(const Candidate& at) const {
  const Belief& known = belief();
  double mean = 0, square = 0;
  for (const Belief::Point& point : known.points) {
    const Linear line = log_step(at, point.theta);
    double value = line.value;
    double variance =
        line.slope.cwiseProduct(line.slope).dot(point.variance) + known.deviation(point, at, at);
    if (!known.at.empty()) {
      const Eigen::VectorXd with = known.with_measured(point, at, line.slope);
      value += with.dot(point.weights) - line.slope.dot(point.theta);
      variance -= with.dot(point.precision * with);
    }
    mean += point.weight * value;
    square += point.weight * (std::max(0.0, variance) + value * value);
  }
  return {std::exp(mean) * at.predicted.total(), std::sqrt(std::max(0.0, square - mean * mean))};
}

std::vector<WeightedRatio> StepTimes::ratio_mixture(const Candidate& a, const Candidate& b) const {
  const double predicted = std::log(a.predicted.total() / b.predicted.total());
  if (a.at == b.at) return {{1, {predicted, 0}}};
  const Belief& known = belief();
  std::vector<WeightedRatio> mixture;
  for (const Belief::Point& point : known.points) {
    const Linear of_a = log_step(a, point.theta), of_b = log_step(b, point.theta);
    const Factors slope = of_a.slope - of_b.slope;
    double value = of_a.value - of_b.value;
    double variance = slope.cwiseProduct(slope).dot(point.variance) + known.deviation(point, a, a) +
                      known.deviation(point, b, b) - 2 * known.deviation(point, a, b);
    if (!known.at.empty()) {
      const Eigen::VectorXd with =
          known.with_measured(point, a, of_a.slope) - known.with_measured(point, b, of_b.slope);
      value += with.dot(point.weights) - slope.dot(point.theta);
      variance -= with.dot(point.precision * with);
    }
    mixture.push_back({point.weight, {predicted + value, std::sqrt(std::max(0.0, variance))}});
  }
  return mixture;
}

StepTimeRatio StepTimes::ratio(const Candidate& a, const Candidate& b) const {
  StepTimeRatio whole;
  const std::vector<WeightedRatio> mixture = ratio_mixture(a, b);
  for (const auto& [weight, ratio] : mixture) whole.log_mean += weight * ratio.log_mean;
  for (const auto& [weight, ratio] : mixture) {
    whole.log_sd += weight * std::hypot(ratio.log_sd, ratio.log_mean - whole.log_mean);
  }
  return whole;
}

Json StepTimes::to_json() const {
  Json all = Json::array();
  for (const auto& [name, measured] : measured_) {
    all.push_back({{"at", name}, {"steps", measured.steps}, {"recent_s", measured.recent}});
  }
  return all;
}

Result<void> StepTimes::restore(const Json& json, const std::string& where,
                                const std::vector<Candidate>& candidates) {
  if (!json.is_array()) return field_error(where, "want a list of measured configurations");
  std::map<std::string, Measured> read;
  for (const Json& each : json) {
    FieldReader fields(each, where);
    const std::string name = fields.text("at");
    Measured measured;
    measured.steps = fields.integer("steps", 1, std::int64_t{1} << 53);
    const Json& recent = fields.child("recent_s");
    fields.refuse_unknown();
    COPUS_TRY_VOID(fields.finish());
    if (!recent.is_array() || recent.empty() || recent.size() > kWindow) {
      return field_error(where, "recent_s of {}: want 1 to {} numbers", name, kWindow);
    }
    for (const Json& seconds : recent) {
      if (!seconds.is_number() ||
          !(seconds.get<double>() >= 1e-9 && seconds.get<double>() <= 1e9)) {
        return field_error(where, "recent_s of {}: got {}; want 1e-9 to 1e9 seconds", name,
                           seconds.dump());
      }
      measured.recent.push_back(seconds.get<double>());
    }
    const auto found =
        std::find_if(candidates.begin(), candidates.end(),
                     [&](const Candidate& candidate) { return to_text(candidate.at) == name; });
    if (found == candidates.end()) continue;
    measured.at = *found;
    read[name] = std::move(measured);
  }
  measured_ = std::move(read);
  belief_.reset();
  return {};
}

}  // namespace copus
