// Configuration: what a run can be moved between: a plan and a global batch.
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

// Whether all weights and optimizer state lie where they lay: nothing has to be moved between these
// two plans (they may differ in micro-batch, recompute, sequence parallelism, and in a schedule
// that runs the same chunks).
bool same_placement(const ParallelPlan& a, const ParallelPlan& b);

// "dp2.tp1.pp2.mb4 at batch 32". No two configurations share it.
std::string to_text(const Configuration& at);
// And back.
Result<Configuration> parse_configuration(std::string_view text);

}  // namespace copus
