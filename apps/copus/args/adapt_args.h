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
      "off; batch (the layout stays); full (batch, layout and micro-batch); track (the batch is "
      "the critical one and the layout stays: a baseline of copus compare)",
      Adapt::kOff};
  PolicyArgs policy{this, kAdapting};
  ClusterOption cluster{this, "what step times are predicted from: ",
                        Otherwise{"measured on CPUs, the catalog's on GPUs"}};
};

// What is left for a plan that the user has not said.
enum class PlanChoice { kGiven, kBest, kLeftOpen };

// Settles what follows from others, and what of `args` a run's file has.
Result<AdaptOptions> resolve_adapt(AdaptArgs& args, const TrainerOptions& trainer, PlanChoice plan,
                                   int ranks);

}  // namespace copus
