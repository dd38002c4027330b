// Runs copus train after its request has been validated.
#pragma once

#include <string>
#include <vector>

#include "apps/copus/args/train_request.h"

namespace copus {

// Trains, in this process or in ranks that it starts; returns the exit code. `command` is this
// program's path and its arguments. In a program without the engine (train_elsewhere.cc) this
// function replaces the process by the program that has it.
int train(TrainRequest request, TrainArgs& args, const std::vector<std::string>& command);

}  // namespace copus
