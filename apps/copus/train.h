// copus train, once nothing is wrong with what was asked for.
#pragma once

#include <string>
#include <vector>

#include "apps/copus/args/train_request.h"

namespace copus {

// Trains, in this process or in ranks that it starts; returns the exit code. `command`: this
// process's program, by its path, and its arguments. Where this program has no engine
// (train_elsewhere.cc) it becomes the one that has.
int train(TrainRequest request, TrainArgs& args, const std::vector<std::string>& command);

}  // namespace copus
