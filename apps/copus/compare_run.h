// One run of a live comparison: starts copus train as a child process and follows the events that
// it writes.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "apps/copus/child_process.h"
#include "copus/sim/recorded_run.h"
#include "copus/train/launch/signal_pipe.h"

namespace copus {

struct LiveOptions {
  std::string program;
  std::string config;
  std::string folder;
  std::int64_t start_batch = 0;
  std::int64_t late_batch = 0;  // the largest batch of the static policies
  std::vector<double> losses;
  std::int64_t window = 0;
  Seconds limit;
  // Options of this command that `copus train` also has: for every run, and for runs that make
  // decisions.
  std::vector<std::string> flags, decision_flags;
  bool has_cluster = false;  // the flags contain --cluster
};

// Handles the signals that end a comparison.
class Stop {
 public:
  Result<void> open() { return signals_.open(); }
  int signal() const { return signal_; }  // 0: none received
  // Waits a moment. A signal asks the active run to end; a second SIGINT, or a minute without an
  // end, kills it.
  void look(const ChildProcess& child);

 private:
  SignalPipe signals_;
  int signal_ = 0;
  std::chrono::steady_clock::time_point since_;
};

// Runs one policy with one seed until its last loss is reached or its time is over. If the run
// fails, its error is in its log.
Result<RecordedRun> train_live(const LiveOptions& o, const std::string& name, std::int64_t seed,
                               const std::vector<std::string>& flags, Stop& stop);

}  // namespace copus
