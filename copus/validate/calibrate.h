// Calibration: fits the parameters of GPUs, networks and frameworks, so that the cost model agrees
// best with measured step times and memory peaks.
//
// The fit is nonlinear least squares on the logarithm of predicted over measured. A robust loss
// limits the effect of single bad measurements. A prior belief about each parameter keeps few rows
// from moving a parameter that they say little about. A parameter that the rows say nothing about
// keeps its starting value.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "copus/validate/measured.h"
#include "copus/validate/parameters.h"
#include "copus/validate/price.h"

namespace copus {

struct CalibrationRow {
  const MeasuredRun* run;
  const FrameworkProfile* profile;
  double weight = 1;
};

struct FittedParameter {
  std::string key;  // "A100", "nanotron", …
  std::string name;
  double start = 0, value = 0;
  double low = 0, high = 0;  // 95% interval
  bool informed = false;     // the rows more than halve the variance of the prior belief
  // The fit moved the parameter to an end of its range. It then probably stands in for another
  // effect.
  bool at_limit = false;
};

struct Calibration {
  std::vector<FittedParameter> parameters;
  bool converged = true;  // the solver reports a usable solution
  // False: the solver could not compute the intervals. They are then as wide as the prior beliefs,
  // and no parameter is marked as informed.
  bool intervals_known = true;
  bool from_scratch = false;      // as in CalibrationOptions
  std::vector<std::string> keep;  // as in CalibrationOptions
  // Sets the fitted values in a run's cluster and profile. If from_scratch, a parameter that is
  // neither fitted nor kept gets its prior, if it has one.
  void apply(ClusterSpec& cluster, FrameworkProfile& profile) const;
};

struct CalibrationOptions {
  std::vector<std::string> keep;  // frameworks, GPUs or networks that are not fitted
  // Starts from the values that are expected for any GPU or framework instead of the catalog's
  // values. This makes it possible to judge the catalog on the rows from which it was fitted.
  bool from_scratch = false;
  double row_error = 0.08;  // expected relative error of one row, from measurement and cost model
  int iterations = 12;      // most iterations of the solver in each of its three stages
};

// Whether this program has a solver.
bool can_calibrate();

// Ignores failed rows and rows that cannot be priced. A row without a step time counts only for
// memory, and a row without a memory peak only for time. REQUIRES: can_calibrate().
Calibration calibrate(std::span<const CalibrationRow> rows, const CalibrationOptions& options);

// Prices each row with parameters that were fitted to the rows of all other folds, which gives the
// error on unseen rows. folds[i] names the fold of rows[i]. `progress` is called after each fold
// with the number of folds done.
std::vector<std::optional<RunPrice>> cross_validate(
    std::span<const CalibrationRow> rows, std::span<const std::string> folds,
    const CalibrationOptions& options,
    const std::function<void(std::size_t done, std::size_t all)>& progress);

// Gives each row a weight. A row of a source with many rows counts less, because a thousand rows of
// one cluster say less than a thousand rows of ten clusters.
std::vector<CalibrationRow> balanced_rows(std::span<const MeasuredRun* const> runs,
                                          std::span<const FrameworkProfile* const> profiles);

// Prices a run as price() does, but with the fitted parameters.
std::optional<RunPrice> price(const MeasuredRun& run, const FrameworkProfile& profile,
                              const Calibration& calibration);

}  // namespace copus
