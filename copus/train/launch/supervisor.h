// Starts the local ranks as processes of this program and stays until the last has ended.
//
// Not thread-safe: one supervisor per process; it owns SIGINT, SIGTERM and SIGCHLD while it runs.
#pragma once

#include <string>
#include <vector>

#include "copus/base/result.h"

namespace copus {

struct SupervisorOptions {
  int ranks = 1;
  std::vector<std::string> command;  // program and arguments of every rank
  int master_port = 0;               // where the store of this run is served (by this process)
  double grace_s = 10;               // from the polite signal to SIGKILL
};

struct SupervisorOutcome {
  int exit_code = 0;         // of the first rank that failed; 0 when all ended well
  int failed_rank = -1;      // the first that failed
  int signal = 0;            // that ended it, when one did
  bool interrupted = false;  // by SIGINT or SIGTERM to this process
  std::string message;       // one line for people; empty when all ended well
};

// Rank 0 writes to this process's standard output directly: it speaks for the run. All that ranks
// write to standard error, and what other ranks write to standard output, comes line by line on
// standard error as "rank 3: …". The first rank that fails (non-zero exit or signal) ends the
// others: SIGTERM, then SIGKILL after the grace. SIGINT or SIGTERM to this process does the same. A
// second SIGINT kills at once. No rank outlives this process, however it ends.
Result<SupervisorOutcome> supervise(const SupervisorOptions& options);

}  // namespace copus
