// copus train: checks the options, the model, the plan and the data, in every program. Only the
// program with the engine trains.
#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/train.h"

namespace copus {

void add_train_command(CommandLine& line) {
  line.add<TrainArgs>({"train", "Train a model over ranks",
                       "copus train --model tiny --ranks 4 --plan tp=2,pp=2 --steps 200 "
                       "--global-batch 32"},
                      [&line](TrainArgs& args) -> Result<int> {
                        COPUS_TRY(TrainRequest request, request_training(args));
                        return train(std::move(request), args, line.command());
                      });
}

}  // namespace copus
