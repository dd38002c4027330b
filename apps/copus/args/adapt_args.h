// copus train's options for adapting, and their conversion to AdaptOptions.
#pragma once

#include <string>

#include "apps/copus/args/policy_args.h"
#include "apps/copus/args/shared_options.h"
#include "copus/train/options/run_options.h"

namespace copus {

struct AdaptArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<Adapt> adapt{
      this, "--adapt", one_of(kAdapts),
      "off; batch: change the batch only; full: change batch, layout and micro-batch; track: keep "
      "the batch at the critical batch, at a fixed layout (a baseline of copus compare)",
      Adapt::kOff};
  Option<Rules> rules{this, "--policy", one_of(kRules),
                      "copus; copus-2026: as the COPUS paper states it, with margins of 0.1, "
                      "calibration 2, lr-aware Goodput, no caution and no tries",
                      Rules::kCopus};
  PolicyArgs policy{this, kAdapting, kFromAQuarter};
  ClusterOption cluster{this, "the cluster that step times are predicted for: ",
                        Otherwise{"measured on CPUs, the catalog's on GPUs"}};
};

// How the plan is chosen: by the user; by the search (--plan best); or by the run, because --plan
// was left out.
enum class PlanChoice { kGiven, kBest, kLeftOpen };

// Converts `args`. Also sets the defaults in `args` that depend on other options, and decides which
// options of `args` the run's config.toml has.
Result<AdaptOptions> resolve_adapt(AdaptArgs& args, const TrainerOptions& trainer, PlanChoice plan,
                                   int ranks);

}  // namespace copus
