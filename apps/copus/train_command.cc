// copus train: what is wrong with its options, the model, the plan or the data is said here, in
// every program; training itself is in the one that has the engine.
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
