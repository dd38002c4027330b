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
  std::optional<std::string> measured_cluster;  // the file of the cluster that a run measured
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

// Gives an option of `copus train` the value that its command line is to have.
template <typename T>
void give(Option<T>& option, std::type_identity_t<T> value) {
  option.set(std::move(value), From::kCommandLine);
}

// Runs one policy with one seed until its last loss is reached or its time is over. `train` has
// the policy's options; those of every run are added. If the run fails, its error is in its log.
Result<RecordedRun> train_live(const LiveOptions& o, const std::string& name, std::int64_t seed,
                               TrainArgs& train, Stop& stop);

}  // namespace copus
