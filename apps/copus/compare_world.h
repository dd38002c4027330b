// The simulated world of copus compare --simulate.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "apps/copus/compare.h"
#include "copus/sim/recorded_world.h"

namespace copus {

struct Simulation {
  Workload job;
  Scenario scenario;
  std::vector<std::int64_t> batches;
  std::vector<double> losses;
  double step_error = 0;
  std::vector<std::string> assumed;

  template <typename... Args>
  void assume(fmt::format_string<Args...> format, Args&&... args) {
    assumed.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
};

Result<Simulation> resolve_simulation(const CompareArgs& args);

}  // namespace copus
