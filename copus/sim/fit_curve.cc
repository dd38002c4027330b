#include "copus/sim/fit_curve.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <unsupported/Eigen/NonLinearOptimization>
#include <unsupported/Eigen/NumericalDiff>

namespace copus {
namespace {

constexpr std::size_t kLevels = 40;   // losses at which the runs are compared
constexpr double kProgressSd = 0.05;  // relative standard deviation of a run's progress to a loss

// The fitted parameters: the critical batch at the last loss and the sharpness, as logarithms, and
// how fast the critical batch rises as the loss falls.
enum Parameter { kCritical, kSharpness, kExponent, kParameters };

struct Prior {
  double mean = 0;
  double sd = 1;
};

FittedCurve unpack(const Eigen::VectorXd& x, double last_loss) {
  FittedCurve fitted;
  fitted.curve.critical_exponent = x[kExponent];
  fitted.curve.critical_scale = std::exp(x[kCritical] + x[kExponent] * std::log(last_loss));
  fitted.law.sharpness = std::exp(x[kSharpness]);
  return fitted;
}

// Returns the geometric mean of the noise scales that were recorded at no more than 1.05 times
// `loss`; nullopt if there are none.
std::optional<double> noise_at(const std::vector<RecordedRun>& runs, double loss) {
  double sum = 0, n = 0;
  for (const RecordedRun& run : runs) {
    for (const RecordedStep& step : run.steps()) {
      if (!step.gns || *step.gns <= 0 || step.smoothed > 1.05 * loss) continue;
      sum += std::log(*step.gns);
      n += 1;
    }
  }
  if (n == 0) return std::nullopt;
  return std::exp(sum / n);
}

// Returns losses that every run has passed, from the highest to the lowest.
std::vector<double> common_levels(const std::vector<RecordedRun>& runs) {
  double highest = INFINITY, lowest = 0;
  for (const RecordedRun& run : runs) {
    double least = INFINITY, first = 0;
    for (const RecordedStep& step : run.steps()) {
      if (first == 0) first = step.smoothed;
      least = std::min(least, step.smoothed);
    }
    highest = std::min(highest, first);
    lowest = std::max(lowest, least);
  }
  std::vector<double> levels;
  if (!(lowest > 0 && lowest < highest && std::isfinite(highest))) return levels;
  for (std::size_t i = 0; i < kLevels; ++i) {
    const double part = static_cast<double>(i) / (kLevels - 1);
    levels.push_back(highest * std::pow(lowest / highest, part));
  }
  return levels;
}

// Returns the logarithm of the progress that a run had made when it first reached each level. The
// recorded losses give the critical batch of each step, so no curve is needed.
std::vector<double> progress_to(const RecordedRun& run, const std::vector<double>& levels,
                                const FittedCurve& guess) {
  std::vector<double> reached;
  double progress = 0;
  for (const RecordedStep& step : run.steps()) {
    progress += guess.law.step(static_cast<double>(step.global_batch),
                               guess.curve.critical_batch(step.smoothed));
    while (reached.size() < levels.size() && step.smoothed <= levels[reached.size()] * (1 + 1e-9)) {
      reached.push_back(std::log(progress));
    }
  }
  return reached;
}

// Returns the mean over runs, by level.
std::vector<double> mean_progress(const std::vector<std::vector<double>>& of_runs) {
  std::vector<double> mean(of_runs.front().size());
  for (const std::vector<double>& run : of_runs) {
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += run[i] / static_cast<double>(of_runs.size());
    }
  }
  return mean;
}

// Returns the highest loss at which every run has seen two windows of samples. Above it a smoothed
// loss depends more on the number of samples in its mean than on what the run has learned.
double first_whole(const std::vector<RecordedRun>& runs) {
  double loss = INFINITY;
  for (const RecordedRun& run : runs) {
    for (const RecordedStep& step : run.steps()) {
      if (step.samples < 2 * run.window()) continue;
      loss = std::min(loss, step.smoothed);
      break;
    }
  }
  return loss;
}

class Residuals {
 public:
  using Scalar = double;
  using InputType = Eigen::VectorXd;
  using ValueType = Eigen::VectorXd;
  using JacobianType = Eigen::MatrixXd;
  enum { InputsAtCompileTime = Eigen::Dynamic, ValuesAtCompileTime = Eigen::Dynamic };

  Residuals(const std::vector<RecordedRun>& runs, std::vector<double> levels,
            std::vector<Prior> priors)
      : runs_(runs), levels_(std::move(levels)), priors_(std::move(priors)) {
    const double whole = first_whole(runs_);
    for (const double level : levels_) compared_.push_back(level <= whole ? 1 : 0);
  }

  int inputs() const { return kParameters; }
  int values() const { return static_cast<int>(runs_.size() * levels_.size()) + kParameters; }

  std::vector<std::vector<double>> progress(const FittedCurve& guess) const {
    std::vector<std::vector<double>> of_runs;
    for (const RecordedRun& run : runs_) of_runs.push_back(progress_to(run, levels_, guess));
    return of_runs;
  }

  int operator()(const Eigen::VectorXd& x, Eigen::VectorXd& out) const {
    const auto of_runs = progress(unpack(x, levels_.back()));
    const std::vector<double> mean = mean_progress(of_runs);
    Eigen::Index row = 0;
    for (const std::vector<double>& run : of_runs) {
      for (std::size_t i = 0; i < mean.size(); ++i) {
        out[row++] = compared_[i] * (run[i] - mean[i]) / kProgressSd;
      }
    }
    for (std::size_t p = 0; p < priors_.size(); ++p) {
      out[row++] = (x[static_cast<Eigen::Index>(p)] - priors_[p].mean) / priors_[p].sd;
    }
    return 0;
  }

 private:
  const std::vector<RecordedRun>& runs_;
  std::vector<double> levels_;
  std::vector<double> compared_;  // 1 or 0, by level
  std::vector<Prior> priors_;
};

// Sets the curve's knots. From one level to the next, progress rises at least a little.
void set_knots(const std::vector<double>& levels, const std::vector<double>& log_progress,
               LossCurve& curve) {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double least = i == 0 ? 0 : curve.knots.back().progress * (1 + 1e-6);
    curve.knots.push_back({std::max(least, std::exp(log_progress[i])), levels[i]});
  }
  curve.start_loss = curve.knots.front().loss;
}

}  // namespace

Result<FittedCurve> fit_curve(const std::vector<RecordedRun>& runs, double calibration) {
  for (const RecordedRun& run : runs) {
    if (run.steps().size() < 20) {
      return field_error("--from", "got a run of {} steps; want 20 or more", run.steps().size());
    }
  }
  const std::vector<double> levels = common_levels(runs);
  if (levels.empty()) {
    return field_error(
        "--from",
        "got runs with no loss in common; want runs whose losses fall and reach a common "
        "value");
  }
  const double last_loss = levels.back();
  const double some_batch = static_cast<double>(runs.front().steps().back().global_batch);
  const double believed = calibration * noise_at(runs, last_loss).value_or(some_batch);
  const std::vector<Prior> priors = {{std::log(believed), 1.5}, {0, 0.7}, {1, 1}};
  const Residuals residuals(runs, levels, priors);
  Eigen::NumericalDiff<Residuals> differentiated(residuals);
  // The solver starts from several points, because far from the critical batch the residuals have
  // no slope.
  Eigen::VectorXd x(kParameters);
  double least = INFINITY;
  for (const double factor : {1.0, 0.25, 4.0}) {
    for (const double sharpness : {1.0, 3.0}) {
      Eigen::VectorXd tried(kParameters), out(residuals.values());
      tried << std::log(believed * factor), std::log(sharpness), 1;
      Eigen::LevenbergMarquardt<Eigen::NumericalDiff<Residuals>> solver(differentiated);
      solver.parameters.maxfev = 200;
      solver.minimize(tried);
      if (!tried.allFinite()) continue;
      residuals(tried, out);
      if (out.squaredNorm() < least) {
        least = out.squaredNorm();
        x = tried;
      }
    }
  }
  if (!std::isfinite(least)) return field_error("--from", "no law of progress fits these runs");

  FittedCurve fitted = unpack(x, last_loss);
  const auto of_runs = residuals.progress(fitted);
  const std::vector<double> mean = mean_progress(of_runs);
  set_knots(levels, mean, fitted.curve);
  double squares = 0;
  for (const std::vector<double>& run : of_runs) {
    for (std::size_t i = 0; i < mean.size(); ++i)
      squares += (run[i] - mean[i]) * (run[i] - mean[i]);
  }
  fitted.spread = std::sqrt(squares / static_cast<double>(of_runs.size() * mean.size()));
  return fitted;
}

}  // namespace copus
