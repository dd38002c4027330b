// A validated request for a training run. This step reports errors in the options, the model, the
// plan or the data before the engine is loaded.
#pragma once

#include <optional>

#include "apps/copus/args/train_args.h"

namespace copus {

struct TrainRequest {
  RunOptions run;
  RestartOptions restarts;
  int ranks = 1;
  std::optional<RankEnvironment> environment;  // none: no launcher started this process
};

// Validates `args`, which come from the command line. Adds to them the options of config files and
// the values that follow from other options.
Result<TrainRequest> request_training(TrainArgs& args);

}  // namespace copus
