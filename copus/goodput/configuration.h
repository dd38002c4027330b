// Configuration: a plan and a global batch. A run moves from one configuration to another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "copus/spec/parallel_plan.h"

namespace copus {

struct Configuration {
  ParallelPlan plan;
  std::int64_t global_batch = 0;
  friend bool operator==(const Configuration&, const Configuration&) = default;
};

// Whether all weights and optimizer state stay where they are, so that nothing moves between these
// two plans. Such plans may differ in micro-batch, recompute, sequence parallelism, and in the
// schedule if it runs the same chunks.
bool same_placement(const ParallelPlan& a, const ParallelPlan& b);

// "dp2.tp1.pp2.mb4 at batch 32". Different configurations have different texts.
std::string to_text(const Configuration& at);
// Parses that text.
Result<Configuration> parse_configuration(std::string_view text);

}  // namespace copus
