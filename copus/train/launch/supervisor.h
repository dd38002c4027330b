// The supervisor: starts the local ranks as child processes and runs until the last has ended.
//
// Not thread-safe. A process may run one supervisor at a time, which handles SIGINT, SIGTERM,
// SIGUSR1, SIGHUP and SIGCHLD while it runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/base/units.h"

namespace copus {

// The exit code of a rank that works well, but ends because of the run's outcome (such as
// --until-loss not reached), which a restart would not change. The run's exit code is then 1.
constexpr int kVerdictExit = 113;

struct SupervisorOptions {
  int ranks = 1;
  std::vector<std::string> command;  // program and arguments of every rank
  int master_port = 0;               // the port on which this process serves the run's store
  Seconds grace{10};                 // after a failure: from SIGTERM to SIGKILL
  // The same after a signal to this process: ranks then save a checkpoint before they end.
  Seconds save_grace{600};
  std::vector<std::string> variables = {};  // NAME=value, for every rank
  int kept_open = -1;                       // a descriptor that every rank inherits; -1: none
  // Called about once a second with the ranks that still run. Returns which of them are stalled, if
  // the run cannot go on for that reason, or "".
  std::function<std::string(const std::vector<int>& alive)> stalled = nullptr;
  // The name of the store, if this process serves it under a name instead of on a port
  // (comm/node_store.h).
  std::string node_store = {};
};

struct SupervisorOutcome {
  int exit_code = 0;         // that of the first rank that failed; 0 if all ended well
  int failed_rank = -1;      // the first rank that failed; -1: none
  int signal = 0;            // the signal that ended the failed rank; 0 if it exited
  std::vector<int> killed;   // the ranks that died of a signal that the supervisor did not send
  bool verdict = false;      // the failed rank ended with kVerdictExit
  bool interrupted = false;  // a signal to this process ended the run
  std::string message;       // one line for the user; empty if all ended well
};

// Runs the ranks until the last has ended.
//
// Rank 0 writes to this process's standard output directly. All other output of ranks goes to this
// process's standard error, line by line, as "rank 3: …". If a rank fails (non-zero exit or
// signal), the supervisor ends the others: by SIGTERM, and after the grace by SIGKILL. On SIGINT,
// SIGTERM, SIGUSR1 or SIGHUP to this process it does the same with the longer grace; if all ranks
// then end well, the exit code is 0 (after SIGINT: 130). A second SIGINT kills all ranks at once.
// No rank outlives this process, not even if it is killed.
Result<SupervisorOutcome> supervise(const SupervisorOptions& options);

}  // namespace copus
