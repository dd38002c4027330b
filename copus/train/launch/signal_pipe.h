// SignalPipe: the signals that end a run, and SIGCHLD, as something that poll() can wait for.
//
// A handler that writes to a pipe, not a signalfd: the process may have threads that do not block
// these signals (the store's), and a handler runs whichever thread they reach. One at a time per
// process.
#pragma once

#include <signal.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/base/units.h"

namespace copus {

// "SIGTERM".
std::string signal_name(int number);

// Sleeps; ends early with the number of a signal that came.
Result<std::optional<int>> sleep_until_signal(Seconds time);

// Owns the signals while it is open, and gives back what was set before.
class SignalPipe {
 public:
  SignalPipe() = default;
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;
  ~SignalPipe();

  // Also ignores SIGPIPE: a reader of our output that goes away must not take the run with it. A
  // SIGHUP that is ignored (nohup) stays so.
  Result<void> open();

  int fd() const { return ends_[0]; }  // readable when one came
  // Those that came, in their order; SIGCHLD only wakes the waiter and is left out.
  std::vector<int> take() const;

 private:
  static constexpr std::array kNoted = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCHLD};

  std::array<int, 2> ends_ = {-1, -1};
  std::array<struct sigaction, kNoted.size()> before_ = {};
  struct sigaction pipe_before_ = {};
};

}  // namespace copus
