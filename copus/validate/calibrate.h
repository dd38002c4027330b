// Calibration: the parameters of GPUs, networks and frameworks that make the cost model meet
// measured step times best.
//
// Nonlinear least squares on the logarithm of predicted over measured, with a robust loss (one bad
// reading moves nothing) and a belief about each parameter (few rows move little that they do not
// speak of). What the rows say nothing about keeps its starting value.
#pragma once

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
  // 95% interval; equal to the belief's where the rows say nothing.
  double low = 0, high = 0;
};

struct Calibration {
  std::vector<FittedParameter> parameters;
  // A run's own cluster and profile with the fitted values in them.
  void apply(ClusterSpec& cluster, FrameworkProfile& profile) const;
};

struct CalibrationOptions {
  std::vector<std::string> only;  // names of the parameters to fit; empty: all
  double row_error = 0.08;        // relative error that a row's reading and the model's form have
  int iterations = 30;
};

// Rows without a step time, failed ones and those that cannot be priced are passed over.
Calibration calibrate(std::span<const CalibrationRow> rows, const CalibrationOptions& options);

// As price(), with fitted parameters.
std::optional<RunPrice> price(const MeasuredRun& run, const FrameworkProfile& profile,
                              const Calibration& calibration);

}  // namespace copus
