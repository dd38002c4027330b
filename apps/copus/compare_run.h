// One run of a live comparison: copus train as a child process, followed by the events it writes.
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
  std::int64_t late_batch = 0;  // the largest static one
  std::vector<double> losses;
  std::int64_t window = 0;
  Seconds limit;
  // What was given here that `copus train` has too: for every run, and for those that make
  // decisions.
  std::vector<std::string> flags, decision_flags;
  bool has_cluster = false;  // among the flags
};

// The signals that end a comparison, and the run that is under way with it.
class Stop {
 public:
  Result<void> open() { return signals_.open(); }
  int signal() const { return signal_; }  // 0: none came
  // Waits a moment. A signal asks the run to end; a second SIGINT, or a minute, does not ask.
  void look(const ChildProcess& child);

 private:
  SignalPipe signals_;
  int signal_ = 0;
  std::chrono::steady_clock::time_point since_;
};

// One policy, one seed, until its last loss is reached or its time is over. Its own error, where
// there is one, is in its log.
Result<RecordedRun> train_live(const LiveOptions& o, const std::string& name, std::int64_t seed,
                               const std::vector<std::string>& flags, Stop& stop);

}  // namespace copus
