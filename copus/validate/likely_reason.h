// Why a prediction may be wrong: what the prediction rests on, and what about the row is doubtful.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "copus/validate/accuracy.h"

namespace copus {

// Another row of the same configuration, whose measured time is far from this one's.
struct Twin {
  const MeasuredRun* run = nullptr;
  double ratio = 1;  // this row's time over the other's
};

// Measurements of one configuration that differ by more than this contradict each other.
constexpr double kTwinRatio = 1.2;

// For each run, the twin that it differs from most. Thousands of rows take milliseconds.
std::vector<std::optional<Twin>> find_twins(std::span<const PricedRun> runs);

// One sentence, without a full stop. REQUIRES: the run has a measured step time.
std::string likely_reason(const MeasuredRun& run, const RunPrice& price,
                          const std::optional<Twin>& twin);

}  // namespace copus
