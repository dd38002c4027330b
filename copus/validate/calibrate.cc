#include "copus/validate/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace copus {

void Calibration::apply(ClusterSpec& cluster, FrameworkProfile& profile) const {
  for (const Parameter& p : calibration_parameters()) {
    const std::string key = scope_key(p.scope, cluster, profile);
    if (from_scratch && p.prior != Parameter::kNoPrior &&
        std::find(keep.begin(), keep.end(), key) == keep.end()) {
      set_parameter(p, p.prior, cluster, profile);
    }
    for (const FittedParameter& fitted : parameters) {
      if (fitted.key == key && fitted.name == p.name) {
        set_parameter(p, fitted.value, cluster, profile);
      }
    }
  }
}

std::vector<std::optional<RunPrice>> cross_validate(
    std::span<const CalibrationRow> rows, std::span<const std::string> folds,
    const CalibrationOptions& options,
    const std::function<void(std::size_t done, std::size_t all)>& progress) {
  std::vector<std::optional<RunPrice>> prices(rows.size());
  const std::set<std::string> names(folds.begin(), folds.end());
  std::size_t done = 0;
  for (const std::string& fold : names) {
    std::vector<CalibrationRow> others;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (folds[i] != fold) others.push_back(rows[i]);
    }
    const Calibration fitted = calibrate(others, options);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (folds[i] == fold) prices[i] = price(*rows[i].run, *rows[i].profile, fitted);
    }
    progress(++done, names.size());
  }
  return prices;
}

std::vector<CalibrationRow> balanced_rows(std::span<const MeasuredRun* const> runs,
                                          std::span<const FrameworkProfile* const> profiles) {
  constexpr double kEnough = 150;
  std::map<std::string, double> count;
  for (const MeasuredRun* run : runs) ++count[run->source];
  std::vector<CalibrationRow> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const double weight = std::sqrt(std::min(1.0, kEnough / count[runs[i]->source]));
    rows.push_back({runs[i], profiles[i], weight});
  }
  return rows;
}

std::optional<RunPrice> price(const MeasuredRun& run, const FrameworkProfile& profile,
                              const Calibration& calibration) {
  if (!run.problem.empty()) return std::nullopt;
  ClusterSpec cluster = cluster_of_run(run, profile);
  FrameworkProfile fitted = profile;
  calibration.apply(cluster, fitted);
  return price(run, cluster, fitted);
}

}  // namespace copus
