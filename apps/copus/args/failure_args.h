// copus train's arguments for what goes wrong: restarts, stalls, bad steps.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "copus/base/json.h"
#include "copus/train/health/bad_step.h"
#include "copus/train/launch/restarts.h"

namespace copus {

// Text until resolved, so that a bad value gets our message.
struct FailureArgs {
  std::string max_restarts, elastic, grace;
  std::string on_bad_step, spike, norm_spike, max_bad_steps, max_rollbacks;
};

void add_failure_options(CLI::App& command, FailureArgs& args);

Result<RestartOptions> resolve_restarts(const FailureArgs& args, int ranks);
Result<BadStepOptions> resolve_bad_steps(const FailureArgs& args);
// From a signal to SIGKILL, for what has to be saved.
Result<double> save_grace_s(const FailureArgs& args);

// Key and value as --config reads them.
std::vector<std::pair<std::string, Json>> failure_config(const FailureArgs& args,
                                                         const BadStepOptions& bad_steps);

}  // namespace copus
