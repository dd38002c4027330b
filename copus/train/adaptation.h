// How a run adapts: what is decided, over which configurations, on which cluster.
#pragma once

#include <optional>
#include <vector>

#include "copus/goodput/controller.h"
#include "copus/train/trainer.h"

namespace copus {

struct AdaptOptions {
  ControllerOptions controller;  // policy.adapt: off, batch, full
  std::int64_t lowest_batch = 0, highest_batch = 0;
  std::vector<PartialPlan> spaces;     // what is pinned; each is searched
  std::optional<ClusterSpec> cluster;  // nothing: measured here, or the catalog's
  bool choose_plan = false;            // begin with the layout that is predicted to be fastest

  bool on() const { return controller.policy.adapt != Adapt::kOff; }
};

// What can be decided between.
struct Adaptation {
  ClusterSpec cluster;
  StepTimeOptions times;  // how far the prediction is trusted
  Candidate start;
  std::vector<Candidate> candidates;  // rank 0's
  std::int64_t largest_bytes = 0;     // of host memory that a rank has at a candidate
};

// Every rank calls this. Where `choose_plan` asks for it, `trainer.plan` becomes the predicted
// best for its batch.
Result<Adaptation> prepare_adaptation(const AdaptOptions& options, GroupCache& groups,
                                      TrainerOptions& trainer);

// A Controller for them; only rank 0 needs one. Without an adaptation it watches the noise scale
// and decides nothing.
Controller make_controller(const AdaptOptions& options, const TrainerOptions& trainer,
                           const std::optional<Adaptation>& adaptation);

}  // namespace copus
