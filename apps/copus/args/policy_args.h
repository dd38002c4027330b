// The arguments that say how batch and layout are chosen, of a live run and of a simulated one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "copus/goodput/controller.h"

namespace copus {

// Text until resolved, so that a bad value gets our message.
struct PolicyArgs {
  std::string goodput, margin, batch_margin, calibration, decide_every, dwell, horizon, probe,
      caution;
  std::string batch_range, fix;
};

void add_policy_options(CLI::App& command, PolicyArgs& args);

// policy.adapt is left as it is.
Result<void> resolve_policy(const PolicyArgs& args, ControllerOptions& out);

struct BatchRange {
  std::int64_t lowest = 0, highest = 0;
};
// "LOW:HIGH"; without: two powers of two below the start and six above it.
Result<BatchRange> resolve_batch_range(const std::string& text, std::int64_t start);

}  // namespace copus
