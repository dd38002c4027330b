// Calibration: the parameters of GPUs, networks and frameworks that make the cost model meet
// measured step times best.
//
// Nonlinear least squares on the logarithm of predicted over measured, with a robust loss (one bad
// reading moves nothing) and a belief about each parameter (few rows move little that they do not
// speak of). What the rows say nothing about keeps its starting value.
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
  bool informed = false;     // the rows say more about it than was thought before
  bool at_limit = false;     // the fit moved it as far as it may go: it stands for something else
};

struct Calibration {
  std::vector<FittedParameter> parameters;
  bool converged = true;  // the solver came to an end that it trusts
  // Else the intervals are as wide as what was believed before, and nothing is known of which
  // parameters the rows speak of.
  bool intervals_known = true;
  // From scratch: what no row speaks of is what would be thought of any, not what the catalog says.
  bool from_scratch = false;
  std::vector<std::string> keep;
  // A run's own cluster and profile with the fitted values in them.
  void apply(ClusterSpec& cluster, FrameworkProfile& profile) const;
};

struct CalibrationOptions {
  std::vector<std::string> keep;  // frameworks, GPUs or networks that stay as they are
  // Begin with what would be thought of any GPU or framework, not with what the catalog says: for
  // judging the catalog on the rows that it came from.
  bool from_scratch = false;
  double row_error = 0.08;  // relative error that a row's reading and the model's form have
  int iterations = 12;      // of each of three stages
};

// Whether this build has a solver.
bool can_calibrate();

// Rows without a step time, failed ones and those that cannot be priced are passed over.
// REQUIRES: can_calibrate().
Calibration calibrate(std::span<const CalibrationRow> rows, const CalibrationOptions& options);

// What each row costs with parameters fitted to the rows of other folds: the error of rows never
// seen. `folds` names each row's; `progress` is called after each fold with how many are done.
std::vector<std::optional<RunPrice>> cross_validate(
    std::span<const CalibrationRow> rows, std::span<const std::string> folds,
    const CalibrationOptions& options,
    const std::function<void(std::size_t done, std::size_t all)>& progress);

// A row counts less where its source has many: a thousand rows of one cluster say less than a
// thousand of ten.
std::vector<CalibrationRow> balanced_rows(std::span<const MeasuredRun* const> runs,
                                          std::span<const FrameworkProfile* const> profiles);

// As price(), with fitted parameters.
std::optional<RunPrice> price(const MeasuredRun& run, const FrameworkProfile& profile,
                              const Calibration& calibration);

}  // namespace copus
