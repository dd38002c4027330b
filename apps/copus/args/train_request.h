// A training run that was asked for and can be: whatever is wrong with the options, the model, the
// plan or the data has been said before the engine is loaded.
#pragma once

#include <optional>

#include "apps/copus/args/train_args.h"

namespace copus {

struct TrainRequest {
  RunOptions run;
  RestartOptions restarts;
  int ranks = 1;
  std::optional<RankEnvironment> environment;  // nothing: no launcher started this process
};

// `args`: as the command line has them. Files are read into them, and what follows is settled.
Result<TrainRequest> request_training(TrainArgs& args);

}  // namespace copus
