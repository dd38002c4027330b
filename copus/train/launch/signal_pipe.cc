#include "copus/train/launch/signal_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace copus {
namespace {

std::atomic<int> write_end = -1;
static_assert(std::atomic<int>::is_always_lock_free);  // a handler reads it

extern "C" void copus_note_signal(int number) {
  const int kept = errno;
  const auto byte = static_cast<unsigned char>(number);
  [[maybe_unused]] const ssize_t written = ::write(write_end.load(), &byte, 1);
  errno = kept;
}

}  // namespace

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

Result<std::optional<int>> sleep_until_signal(Seconds time) {
  SignalPipe signals;
  COPUS_TRY_VOID(signals.open());
  pollfd ready = {signals.fd(), POLLIN, 0};
  ::poll(&ready, 1, static_cast<int>(time.v * 1000));
  const std::vector<int> came = signals.take();
  return came.empty() ? std::optional<int>() : came.front();
}

Result<void> SignalPipe::open() {
  if (::pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return field_error("signals", "cannot open a pipe: {}", std::strerror(errno));
  }
  write_end = ends_[1];
  struct sigaction action = {};
  action.sa_handler = copus_note_signal;
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  for (std::size_t i = 0; i < kNoted.size(); ++i) {
    ::sigaction(kNoted[i], &action, &before_[i]);
    if (kNoted[i] == SIGHUP && before_[i].sa_handler == SIG_IGN) {
      ::sigaction(SIGHUP, &before_[i], nullptr);
    }
  }
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &pipe_before_);
  return {};
}

SignalPipe::~SignalPipe() {
  if (ends_[0] < 0) return;
  for (std::size_t i = 0; i < kNoted.size(); ++i) ::sigaction(kNoted[i], &before_[i], nullptr);
  ::sigaction(SIGPIPE, &pipe_before_, nullptr);
  write_end = -1;
  ::close(ends_[0]);
  ::close(ends_[1]);
}

std::vector<int> SignalPipe::take() const {
  std::vector<int> numbers;
  std::array<unsigned char, 256> bytes = {};
  for (;;) {
    const ssize_t n = ::read(ends_[0], bytes.data(), bytes.size());
    if (n <= 0) return numbers;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      if (bytes[i] != SIGCHLD) numbers.push_back(bytes[i]);
    }
  }
}

}  // namespace copus
