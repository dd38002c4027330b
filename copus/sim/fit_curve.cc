#include "copus/sim/fit_curve.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <unsupported/Eigen/NonLinearOptimization>
#include <unsupported/Eigen/NumericalDiff>

namespace copus {
namespace {

constexpr std::size_t kPoints = 120;  // of each run

// What is fitted, in this order: logarithms, but for the last.
enum Parameter { kFloor, kScale, kExponent, kCritical, kCriticalExponent, kLr, kParameters };

struct Prior {
  double mean = 0;
  double sd = 1;
};

FittedCurve unpack(const Eigen::VectorXd& x, double start_loss, double base_batch) {
  FittedCurve fitted;
  LossCurve& curve = fitted.curve;
  // Below where it begins, whatever is tried.
  curve.floor = start_loss / (1 + std::exp(-x[kFloor]));
  curve.scale = std::exp(x[kScale]);
  curve.exponent = std::exp(x[kExponent]);
  curve.start_loss = start_loss;
  curve.critical_exponent = std::exp(x[kCriticalExponent]);
  curve.critical_scale = std::exp(x[kCritical]);
  fitted.law.lr_exponent = x[kLr];
  fitted.law.base_batch = base_batch;
  return fitted;
}

class Residuals {
 public:
  using Scalar = double;
  using InputType = Eigen::VectorXd;
  using ValueType = Eigen::VectorXd;
  using JacobianType = Eigen::MatrixXd;
  enum { InputsAtCompileTime = Eigen::Dynamic, ValuesAtCompileTime = Eigen::Dynamic };

  Residuals(const std::vector<RecordedRun>& runs, double start_loss, double base_batch,
            std::vector<Prior> priors)
      : runs_(runs), start_loss_(start_loss), base_batch_(base_batch), priors_(std::move(priors)) {
    for (const RecordedRun& run : runs_) {
      // The first tenth is warm-up of the learning rate and of the mean.
      const std::size_t first = run.steps().size() / 10;
      const std::size_t every = std::max<std::size_t>(1, (run.steps().size() - first) / kPoints);
      std::vector<std::size_t> at;
      for (std::size_t i = first; i < run.steps().size(); i += every) at.push_back(i);
      points_ += at.size();
      at_.push_back(std::move(at));
    }
  }

  int inputs() const { return kParameters; }
  int values() const { return static_cast<int>(points_) + kParameters; }
  std::size_t points() const { return points_; }

  int operator()(const Eigen::VectorXd& x, Eigen::VectorXd& out) const {
    const FittedCurve fitted = unpack(x, start_loss_, base_batch_);
    Eigen::Index row = 0;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const std::vector<RecordedStep>& steps = runs_[r].steps();
      double progress = 0, loss = start_loss_;
      std::size_t next = 0;
      for (std::size_t i = 0; i < steps.size() && next < at_[r].size(); ++i) {
        const auto batch = static_cast<double>(steps[i].global_batch);
        progress += fitted.law.step(batch, fitted.curve.critical_batch(loss));
        loss = fitted.curve.loss_at(progress);
        if (i != at_[r][next]) continue;
        out[row++] = std::log(loss / steps[i].smoothed) / kLossSd;
        ++next;
      }
    }
    for (std::size_t p = 0; p < priors_.size(); ++p) {
      out[row++] = (x[static_cast<Eigen::Index>(p)] - priors_[p].mean) / priors_[p].sd;
    }
    return 0;
  }

  static constexpr double kLossSd = 0.01;  // of a smoothed loss

 private:
  const std::vector<RecordedRun>& runs_;
  double start_loss_, base_batch_;
  std::vector<Prior> priors_;
  std::vector<std::vector<std::size_t>> at_;
  std::size_t points_ = 0;
};

}  // namespace

Result<FittedCurve> fit_curve(const std::vector<RecordedRun>& runs, double calibration,
                              double base_batch) {
  double start_loss = 0, last_loss = INFINITY, log_gns = 0, steps = 0;
  double measured = 0, at_loss = 0;
  for (const RecordedRun& run : runs) {
    if (run.steps().empty()) continue;
    start_loss = std::max(start_loss, run.steps().front().loss);
    last_loss = std::min(last_loss, run.steps().back().smoothed);
    steps = std::max(steps, static_cast<double>(run.steps().size()));
    for (const RecordedStep& step : run.steps()) {
      if (!step.gns || *step.gns <= 0) continue;
      measured += 1;
      log_gns += std::log(*step.gns);
      at_loss += std::log(step.smoothed);
    }
  }
  if (steps < 20) return make_error("--from: got runs of {} steps at most; want 20 or more", steps);
  if (!(last_loss < start_loss)) {
    return make_error("--from: got losses that do not fall ({} to {}); want runs that learn",
                      start_loss, last_loss);
  }
  const double critical_exponent = 1 / 0.21;  // Kaplan's
  double log_critical = std::log(calibration * base_batch), log_loss = std::log(last_loss);
  if (measured > 0) {
    log_critical = std::log(calibration) + log_gns / measured;
    log_loss = at_loss / measured;
  }
  // critical = scale / loss^exponent there.
  const std::vector<Prior> priors = {
      {0, 2},  // the floor: half of the first loss, give or take all
      {std::log(steps / 10), 3},
      {std::log(0.5), 1},
      {log_critical + critical_exponent * log_loss, 1.5},
      {std::log(critical_exponent), 0.3},
      {0, 0.25},
  };
  Eigen::VectorXd x(kParameters);
  for (int p = 0; p < kParameters; ++p) x[p] = priors[static_cast<std::size_t>(p)].mean;
  const Residuals residuals(runs, start_loss, base_batch, priors);
  Eigen::NumericalDiff<Residuals> differentiated(residuals);
  Eigen::LevenbergMarquardt<Eigen::NumericalDiff<Residuals>> solver(differentiated);
  solver.parameters.maxfev = 4000;
  solver.minimize(x);
  if (!x.allFinite()) return make_error("--from: no loss curve fits these runs");
  FittedCurve fitted = unpack(x, start_loss, base_batch);
  Eigen::VectorXd last(residuals.values());
  residuals(x, last);
  const auto points = static_cast<Eigen::Index>(residuals.points());
  fitted.error =
      Residuals::kLossSd * std::sqrt(last.head(points).squaredNorm() / static_cast<double>(points));
  return fitted;
}

}  // namespace copus
