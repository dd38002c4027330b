// Starts the local ranks as processes of this program and stays until the last has ended.
//
// Not thread-safe: one supervisor per process; it owns SIGINT, SIGTERM, SIGUSR1, SIGHUP and SIGCHLD
// while it runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/base/units.h"

namespace copus {

// What a rank ends with that has nothing to complain of but the run's outcome, which starting again
// would not change. The run's exit code is 1 then.
constexpr int kVerdictExit = 113;

struct SupervisorOptions {
  int ranks = 1;
  std::vector<std::string> command;  // program and arguments of every rank
  int master_port = 0;               // where the store of this run is served (by this process)
  Seconds grace{10};  // after a failure: from the polite signal to SIGKILL
  // After a signal to this process, which ranks answer by saving what they have.
  Seconds save_grace{600};
  std::vector<std::string> variables = {};  // NAME=value, for every rank
  int kept_open = -1;                       // a descriptor that every rank has too, by this number
  // Asked about once a second which of the ranks that live are beyond hope; empty: none.
  std::function<std::string(const std::vector<int>& alive)> stalled = nullptr;
  // The name of the store, where this process serves none on a port (comm/node_store.h).
  std::string node_store = {};
};

struct SupervisorOutcome {
  int exit_code = 0;         // of the first rank that failed; 0 when all ended well
  int failed_rank = -1;      // the first that failed
  int signal = 0;            // that ended it, when one did
  std::vector<int> killed;   // every rank that died of a signal that was not ours
  bool verdict = false;      // it ended with kVerdictExit
  bool interrupted = false;  // by a signal to this process
  std::string message;       // one line for people; empty when all ended well
};

// Rank 0 writes to this process's standard output directly: it speaks for the run. All that ranks
// write to standard error, and what other ranks write to standard output, comes line by line on
// standard error as "rank 3: …". The first rank that fails (non-zero exit or signal) ends the
// others: SIGTERM, then SIGKILL after the grace. SIGINT, SIGTERM, SIGUSR1 or SIGHUP to this process
// does the same with the longer grace; where all ranks then end well the exit code is 0 (SIGINT:
// 130). A second SIGINT kills at once. No rank outlives this process, however it ends.
Result<SupervisorOutcome> supervise(const SupervisorOptions& options);

}  // namespace copus
