// The configurations that a run that adapts chooses from, and what the choice is based on.
#pragma once

#include <optional>
#include <vector>

#include "copus/goodput/controller.h"
#include "copus/train/engine/trainer.h"
#include "copus/train/options/run_options.h"

namespace copus {

struct Adaptation {
  ClusterSpec cluster;
  StepTimeOptions times;              // how exact the predictions are assumed to be
  Candidate start;                    // where the run begins
  std::vector<Candidate> candidates;  // on rank 0 only
  Bytes largest;                      // the most host memory that a rank needs in any candidate
};

// Measures or looks up the cluster, and lists the candidates. Every rank calls this. If
// `options.choose_plan` is set, `trainer.plan` becomes the plan that is predicted to be the fastest
// for the trainer's batch.
Result<Adaptation> prepare_adaptation(const AdaptOptions& options, GroupCache& groups,
                                      TrainerOptions& trainer);

// Returns a controller over the candidates; only rank 0 needs one. Without an adaptation it
// measures the noise scale and decides nothing.
Controller make_controller(const AdaptOptions& options, const TrainerOptions& trainer,
                           const std::optional<Adaptation>& adaptation);

}  // namespace copus
