// One run of a live comparison: starts copus train as a child process and follows the events that
// it writes.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/copus/args/train_args.h"
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
  BatchRange batches;
  std::vector<double> losses;
  std::int64_t window = 0;
  Seconds limit;
  std::optional<std::string> measured_cluster;  // file of the cluster that the first run measured
};

// Handles the signals that end a comparison.
class Stop {
 public:
  Result<void> open() { return signals_.open(); }
  int signal() const { return signal_; }  // 0: none received
  // Waits a moment and handles signals. A signal asks the active run to end; a second SIGINT kills
  // it, and so does a minute in which it has not ended.
  void look(const ChildProcess& child);

 private:
  SignalPipe signals_;
  int signal_ = 0;
  std::chrono::steady_clock::time_point since_;
};

// Gives an option of `copus train` the value that its command line is to have.
template <typename T>
void give(Option<T>& option, std::type_identity_t<T> value) {
  option.set(std::move(value), From::kCommandLine);
}

// Runs one policy with one seed until it reaches its last loss or its time is over. `train` has the
// policy's options; this function adds those of every run. If the run fails, its log has the error.
Result<RecordedRun> train_live(const LiveOptions& o, const std::string& name, std::int64_t seed,
                               TrainArgs& train, Stop& stop);

}  // namespace copus
