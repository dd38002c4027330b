// SignalPipe: lets poll() wait for SIGCHLD and the signals that end a run.
//
// A signal handler writes to a pipe. A signalfd would need every thread to block these signals, and
// the store's threads do not; the handler works in any thread that receives the signal. A process
// may have one open SignalPipe at a time.
#pragma once

#include <signal.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/base/units.h"

namespace copus {

// Returns the name of a signal, such as "SIGTERM".
std::string signal_name(int number);

// Sleeps for `time`. If a signal arrives, returns early with its number.
Result<std::optional<int>> sleep_until_signal(Seconds time);

// Handles the signals while it is open. Its destructor restores the handlers that were set before.
class SignalPipe {
 public:
  SignalPipe() = default;
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;
  ~SignalPipe();

  // Also ignores SIGPIPE, so that the run goes on if the reader of its output ends. If SIGHUP is
  // ignored already (nohup), it stays ignored.
  Result<void> open();

  int fd() const { return ends_[0]; }  // readable after a signal
  // Returns the signals that have arrived, in their order. SIGCHLD only wakes the waiter and is
  // left out.
  std::vector<int> take() const;

 private:
  static constexpr std::array kNoted = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCHLD};

  std::array<int, 2> ends_ = {-1, -1};
  std::array<struct sigaction, kNoted.size()> before_ = {};
  struct sigaction pipe_before_ = {};
};

}  // namespace copus
