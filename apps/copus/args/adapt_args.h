// copus train's arguments for adapting, and how they become AdaptOptions.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/copus/policy_args.h"
#include "copus/train/run/adaptation.h"

namespace copus {

// Text until resolved, so that a bad value gets our message.
struct AdaptArgs : PolicyArgs {
  std::string adapt, cluster;
};

void add_adapt_options(CLI::App& command, AdaptArgs& args);

// `plan_given`: the user said where to start.
Result<AdaptOptions> resolve_adapt(const AdaptArgs& args, const TrainerOptions& trainer,
                                   bool plan_given, int ranks);

// Key and value as --config reads them.
std::vector<std::pair<std::string, Json>> adapt_config(const AdaptOptions& options,
                                                       const AdaptArgs& args);

}  // namespace copus
