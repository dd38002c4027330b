// What a run that adapts decides between.
#pragma once

#include <optional>
#include <vector>

#include "copus/goodput/controller.h"
#include "copus/train/engine/trainer.h"
#include "copus/train/options/run_options.h"

namespace copus {

// What can be decided between.
struct Adaptation {
  ClusterSpec cluster;
  StepTimeOptions times;  // how far the prediction is trusted
  Candidate start;
  std::vector<Candidate> candidates;  // rank 0's
  Bytes largest;                      // host memory that a rank has at a candidate
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
