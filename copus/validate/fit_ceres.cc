// Implements calibrate() with the Ceres solver.
#include <ceres/ceres.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "copus/validate/calibrate.h"

namespace copus {
namespace {

// A parameter of one GPU, network or framework, as the solver sees it.
struct Unknown {
  const Parameter* parameter;
  std::string key;
  double start;  // in the unit that the parameter's name states
  double x;      // the solver's variable

  double to_x(double value) const {
    return parameter->unit > 0 ? value / parameter->unit : std::log(value);
  }
  double value_of(double at) const {
    return parameter->unit > 0 ? at * parameter->unit : std::exp(at);
  }
};

// The residual of one row: log(predicted / measured) of its time or memory, as a function of the
// unknowns that it depends on.
class RowError {
 public:
  RowError(const CalibrationRow& row, ParameterOf of, std::vector<const Unknown*> unknowns,
           double row_error)
      : row_(row),
        cluster_(cluster_of_run(*row.run, *row.profile)),
        of_(of),
        unknowns_(std::move(unknowns)),
        scale_(row.weight / row_error) {}

  bool operator()(double const* const* x, double* residual) const {
    ClusterSpec cluster = cluster_;
    FrameworkProfile profile = *row_.profile;
    for (std::size_t i = 0; i < unknowns_.size(); ++i) {
      set_parameter(*unknowns_[i]->parameter, unknowns_[i]->value_of(x[i][0]), cluster, profile);
    }
    constexpr std::int64_t kActions = 1'000;  // few, because the solver prices each row many times
    const std::optional<RunPrice> priced = price(*row_.run, cluster, profile, kActions);
    const double ratio = of_ == ParameterOf::kTime ? priced->step_time / *row_.run->step_time
                                                   : priced->peak_memory / *row_.run->peak_memory;
    residual[0] = std::log(ratio) * scale_;
    return std::isfinite(residual[0]);
  }

 private:
  CalibrationRow row_;
  ClusterSpec cluster_;
  ParameterOf of_;
  std::vector<const Unknown*> unknowns_;
  double scale_;
};

// The residual of a prior belief: how far a parameter has moved from the expected value.
struct Belief {
  double mean, spread;
  template <typename T>
  bool operator()(const T* x, T* residual) const {
    residual[0] = (x[0] - mean) / spread;
    return true;
  }
};

bool usable(const CalibrationRow& row, ParameterOf of) {
  if (row.run->failed || !row.run->problem.empty()) return false;
  return of == ParameterOf::kTime ? row.run->step_time.has_value()
                                  : row.run->peak_memory.has_value();
}

}  // namespace

bool can_calibrate() { return true; }

Calibration calibrate(std::span<const CalibrationRow> rows, const CalibrationOptions& options) {
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Unknown>> unknowns;
  ceres::Problem::Options ownership;
  ownership.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  // The loss gives outliers less weight. Its scale shrinks from stage to stage, so that a start far
  // from the truth does not turn most rows into outliers.
  ceres::LossFunctionWrapper loss(nullptr, ceres::TAKE_OWNERSHIP);
  ceres::Problem problem(ownership);
  const auto add_row = [&](const CalibrationRow& row, ParameterOf of) {
    if (!usable(row, of)) return;
    std::vector<const Unknown*> own;
    std::vector<double*> blocks;
    for (const Parameter& p : calibration_parameters()) {
      if (p.of != of) continue;
      if (p.scope == ParameterScope::kNetwork && row.run->cluster.nodes < 2) continue;
      const std::string key = scope_key(p.scope, row.run->cluster, *row.profile);
      if (std::find(options.keep.begin(), options.keep.end(), key) != options.keep.end()) continue;
      std::unique_ptr<Unknown>& unknown = unknowns[{key, p.name}];
      if (unknown == nullptr) {
        ClusterSpec cluster = cluster_of_run(*row.run, *row.profile);
        FrameworkProfile profile = *row.profile;
        profile.options.precision = row.run->precision;
        double given = p.field(cluster, profile.options) / p.scale;
        if (p.when_zero && given == 0) given = p.when_zero(profile.options);
        const double start = options.from_scratch && p.prior != Parameter::kNoPrior
                                 ? p.prior
                                 : std::clamp(given, p.low, p.high);
        unknown = std::make_unique<Unknown>(Unknown{&p, key, start, 0});
        unknown->x = unknown->to_x(start) + (p.is_floor ? 2 * p.spread : 0);
      }
      own.push_back(unknown.get());
      blocks.push_back(&unknown->x);
    }
    if (own.empty()) return;  // all parameters of this row are kept
    ceres::NumericDiffOptions steps;
    steps.relative_step_size = 1e-4;
    auto* cost = new ceres::DynamicNumericDiffCostFunction<RowError, ceres::FORWARD>(
        new RowError(row, of, own, options.row_error), ceres::TAKE_OWNERSHIP, steps);
    for (std::size_t i = 0; i < blocks.size(); ++i) cost->AddParameterBlock(1);
    cost->SetNumResiduals(1);
    problem.AddResidualBlock(cost, &loss, blocks);
  };
  for (const CalibrationRow& row : rows) {
    add_row(row, ParameterOf::kTime);
    add_row(row, ParameterOf::kMemory);
  }
  for (const auto& [name, unknown] : unknowns) {
    const Parameter& p = *unknown->parameter;
    problem.AddResidualBlock(new ceres::AutoDiffCostFunction<Belief, 1, 1>(
                                 new Belief{unknown->to_x(unknown->start), p.spread}),
                             nullptr, &unknown->x);
    problem.SetParameterLowerBound(&unknown->x, 0,
                                   unknown->to_x(std::max(p.low, p.unit > 0 ? 0.0 : 1e-9)));
    problem.SetParameterUpperBound(&unknown->x, 0, unknown->to_x(p.high));
  }
  ceres::Solver::Options solver;
  solver.max_num_iterations = options.iterations;
  solver.linear_solver_type = ceres::DENSE_NORMAL_CHOLESKY;
  solver.function_tolerance = 1e-3;
  solver.num_threads = 2;
  solver.logging_type = ceres::SILENT;
  bool converged = true;
  for (const double scale : {12.0, 4.0, 1.5}) {
    loss.Reset(new ceres::CauchyLoss(scale), ceres::TAKE_OWNERSHIP);
    ceres::Solver::Summary summary;
    ceres::Solve(solver, &problem, &summary);
    converged = converged && summary.IsSolutionUsable();
  }

  ceres::Covariance::Options covariance_options;
  covariance_options.algorithm_type = ceres::DENSE_SVD;
  // The beliefs determine every direction, so the matrix has full rank. If its values are too far
  // apart to invert, Compute() shall fail, and the intervals are unknown. Dropping directions
  // instead would give intervals of zero width.
  covariance_options.null_space_rank = 0;
  ceres::Covariance covariance(covariance_options);
  std::vector<std::pair<const double*, const double*>> wanted;
  wanted.reserve(unknowns.size());
  for (const auto& [name, unknown] : unknowns) wanted.emplace_back(&unknown->x, &unknown->x);
  const bool known = !wanted.empty() && covariance.Compute(wanted, &problem);
  Calibration result;
  result.intervals_known = known || wanted.empty();
  result.converged = converged;
  result.from_scratch = options.from_scratch;
  result.keep = options.keep;
  for (const auto& entry : unknowns) {
    const auto& unknown = *entry.second;  // clang 14 lambdas cannot capture structured bindings
    const Parameter& p = *unknown.parameter;
    double variance = p.spread * p.spread;
    if (known) covariance.GetCovarianceBlock(&unknown.x, &unknown.x, &variance);
    const double reach = 1.96 * std::sqrt(std::max(0.0, variance));
    const auto within = [&](double x) { return std::clamp(unknown.value_of(x), p.low, p.high); };
    const double value = within(unknown.x);
    constexpr double kNear = 1e-3;
    // A value of 0 at a low limit of 0 only means that the effect is absent.
    const bool at_limit =
        value >= p.high * (1 - kNear) || (p.low > 0 && value <= p.low * (1 + kNear));
    result.parameters.push_back({unknown.key, p.name, unknown.start, value,
                                 within(unknown.x - reach), within(unknown.x + reach),
                                 known && variance < 0.5 * p.spread * p.spread,
                                 at_limit && std::abs(value - unknown.start) > kNear * value});
  }
  return result;
}

}  // namespace copus
