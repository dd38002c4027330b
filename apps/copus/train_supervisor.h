// copus train as the supervisor of local ranks, which are processes of the same command.
#pragma once

#include <string>
#include <vector>

#include "apps/copus/train_args.h"

namespace copus {

// The variable by which ranks know the descriptor that the run directory is locked by.
constexpr const char* kHeldDirectory = "COPUS_HELD_DIRECTORY";

// Reports a run that began and did not end well; returns its exit code.
int run_failed(const std::string& message);

// `command`: this process's program and arguments. Starts the ranks, again and with fewer of them
// where the arguments let it, until the run is over; returns the exit code.
int run_supervisor(const TrainArgs& args, const RunOptions& run, int ranks,
                   const RestartOptions& restarts, std::vector<std::string> command);

// Sets an option of a command line, however it was given there. An empty value: a flag.
void set_option(std::vector<std::string>& command, const std::string& name,
                const std::string& value);

}  // namespace copus
