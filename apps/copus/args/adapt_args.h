// copus train's options of adapting, and how they become AdaptOptions.
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
  PolicyArgs policy{this, kAdapting};
  ClusterOption cluster{this, "the cluster that step times are predicted for: ",
                        Otherwise{"measured on CPUs, the catalog's on GPUs"}};
};

// What is left for a plan that the user has not said.
enum class PlanChoice { kGiven, kBest, kLeftOpen };

// Settles what follows from others, and what of `args` a run's file has.
Result<AdaptOptions> resolve_adapt(AdaptArgs& args, const TrainerOptions& trainer, PlanChoice plan,
                                   int ranks);

}  // namespace copus
