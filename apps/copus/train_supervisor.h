// The supervisor of copus train, which starts local ranks as processes of the same program.
#pragma once

#include <string>

#include "apps/copus/args/train_request.h"

namespace copus {

// The environment variable with the descriptor that holds the lock of the run directory.
constexpr const char* kHeldDirectory = "COPUS_HELD_DIRECTORY";

// Reports a run that began and failed; returns its exit code.
int run_failed(const std::string& message);

// Starts the ranks. Restarts them, possibly with fewer ranks, as the options allow, until the run
// ends. Returns the exit code. `program` is this program's path.
int run_supervisor(TrainArgs& args, const TrainRequest& request, const std::string& program);

}  // namespace copus
