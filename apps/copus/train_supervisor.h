// copus train as the supervisor of local ranks, which are processes of the same command.
#pragma once

#include <string>

#include "apps/copus/args/train_request.h"

namespace copus {

// The variable by which ranks know the descriptor that the run directory is locked by.
constexpr const char* kHeldDirectory = "COPUS_HELD_DIRECTORY";

// Reports a run that began and did not end well; returns its exit code.
int run_failed(const std::string& message);

// `program`: this process's, by its path. Starts the ranks, again and with fewer of them where the
// options let it, until the run is over; returns the exit code.
int run_supervisor(TrainArgs& args, const TrainRequest& request, const std::string& program);

}  // namespace copus
