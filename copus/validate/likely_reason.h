// Explains why a prediction may be wrong: which part dominates the prediction, and what is doubtful
// about the measured row.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "copus/validate/accuracy.h"

namespace copus {

// Another row of the same configuration whose measured time is far from the time of this row.
struct Twin {
  const MeasuredRun* run = nullptr;
  double ratio = 1;  // this row's time over the other's
};

// Measurements of one configuration that differ by more than this contradict each other.
constexpr double kTwinRatio = 1.2;

// Finds for each run the twin whose time differs most. Takes milliseconds for thousands of rows.
std::vector<std::optional<Twin>> find_twins(std::span<const PricedRun> runs);

// Returns one sentence without a full stop. REQUIRES: the run has a measured step time.
std::string likely_reason(const MeasuredRun& run, const RunPrice& price,
                          const std::optional<Twin>& twin);

}  // namespace copus
