// One loop over the ranks' pipes and this process's signals.
#include "copus/train/launch/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "copus/train/launch/rank_output.h"
#include "copus/train/launch/rank_process.h"
#include "copus/train/launch/signal_pipe.h"

extern char** environ;

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxRanks = 4096;

// Ranks often fail together: one is killed, the others lose their connections to it. Within this
// time of the first failure a death by signal is taken for the cause.
constexpr auto kCauseWindow = std::chrono::seconds(1);

std::string describe(const RankProcess& process, const RankExit& exit) {
  const std::string words =
      process.last_words.empty() ? "" : "; its last words: " + process.last_words;
  if (exit.signal == 0) {
    return fmt::format("rank {} ended with exit code {}{}", process.rank, exit.code, words);
  }
  // A kill comes from outside: what the rank said before has nothing to do with it.
  const bool from_outside = exit.signal == SIGKILL || exit.signal == SIGTERM;
  return fmt::format("rank {} was killed by signal {} ({}){}", process.rank, exit.signal,
                     ::strsignal(exit.signal), from_outside ? "" : words);
}

class Supervisor {
 public:
  explicit Supervisor(double grace_s) : grace_s_(grace_s) {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() {
    for (RankProcess& process : ranks_) {
      signal_rank(process, SIGKILL);
      while (process.pid > 0 && !reap_rank(process)) ::usleep(1000);
      drain_output(process);
    }
  }

  Result<void> start(const SupervisorOptions& options) {
    COPUS_TRY_VOID(signals_.open());
    COPUS_TRY(const std::string path, find_program(options.command.front()));
    std::vector<std::string> inherited;
    for (char** each = environ; *each != nullptr; ++each) inherited.emplace_back(*each);
    const int cores = usable_cores();
    for (int rank = 0; rank < options.ranks; ++rank) {
      const bool keep_stdout = rank == 0;
      COPUS_TRY(RankProcess process, start_rank(rank, path, options.command,
                                                rank_variables(inherited, rank, options.ranks,
                                                               options.master_port, cores),
                                                keep_stdout));
      ranks_.push_back(std::move(process));
    }
    return {};
  }

  SupervisorOutcome run() {
    while (alive()) {
      wait();
      for (const int number : signals_.take()) on_signal(number);
      // All that have ended first, then what follows from it: of two that ended together neither
      // was ended by us.
      for (RankProcess& process : ranks_) reap(process);
      if (failed_at_) stop();
      if (kill_at_ && Clock::now() >= *kill_at_) kill();
    }
    return outcome_;
  }

 private:
  bool alive() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const RankProcess& process) { return process.pid > 0; });
  }

  // Passes output on until there is a signal, an end of a rank, or the grace is over.
  void wait() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    std::vector<std::pair<RankProcess*, RankStream*>> owners;
    for (RankProcess& process : ranks_) {
      for (RankStream* stream : {&process.out, &process.err}) {
        if (stream->fd < 0) continue;
        fds.push_back({stream->fd, POLLIN, 0});
        owners.emplace_back(&process, stream);
      }
    }
    if (::poll(fds.data(), fds.size(), poll_timeout_ms()) <= 0) return;
    for (std::size_t i = 0; i < owners.size(); ++i) {
      if (fds[i + 1].revents != 0) forward_output(*owners[i].first, *owners[i].second);
    }
  }

  int poll_timeout_ms() const {
    if (!kill_at_ || killed_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
  }

  void on_signal(int number) {
    if (number == SIGINT && ++interrupts_ > 1) kill();
    if (!failed_at_ && !outcome_.interrupted) {
      outcome_.interrupted = true;
      outcome_.exit_code = 128 + number;
      outcome_.message = number == SIGINT ? "stopped by SIGINT" : "stopped by SIGTERM";
    }
    stop();
  }

  void reap(RankProcess& process) {
    if (process.pid <= 0) return;
    const std::optional<RankExit> exit = reap_rank(process);
    if (!exit) return;
    drain_output(process);
    if (outcome_.interrupted || (exit->code == 0 && exit->signal == 0)) return;
    const bool ours =
        (exit->signal == SIGTERM && stopping_) || (exit->signal == SIGKILL && killed_);
    const bool is_first = !failed_at_;
    const bool is_cause = failed_at_ && exit->signal != 0 && !ours && outcome_.signal == 0 &&
                          Clock::now() - *failed_at_ <= kCauseWindow;
    if (is_first) failed_at_ = Clock::now();
    if (!is_first && !is_cause) return;
    outcome_.exit_code = exit->signal != 0 ? 1 : exit->code;
    outcome_.failed_rank = process.rank;
    outcome_.signal = exit->signal;
    outcome_.message = describe(process, *exit);
  }

  // The polite end of all, once.
  void stop() {
    if (std::exchange(stopping_, true)) return;
    for (const RankProcess& process : ranks_) signal_rank(process, SIGTERM);
    kill_at_ = Clock::now() +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(grace_s_));
  }

  void kill() {
    if (std::exchange(killed_, true)) return;
    for (const RankProcess& process : ranks_) signal_rank(process, SIGKILL);
  }

  const double grace_s_;
  SignalPipe signals_;
  std::vector<RankProcess> ranks_;
  SupervisorOutcome outcome_;
  std::optional<Clock::time_point> failed_at_;
  std::optional<Clock::time_point> kill_at_;
  bool stopping_ = false;
  bool killed_ = false;
  int interrupts_ = 0;
};

// A pipe that got the number of a closed standard stream would be overwritten in the child.
void open_standard_streams() {
  for (;;) {
    const int fd = ::open("/dev/null", O_RDWR);
    if (fd > STDERR_FILENO) ::close(fd);
    if (fd < 0 || fd > STDERR_FILENO) return;
  }
}

}  // namespace

Result<SupervisorOutcome> supervise(const SupervisorOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    return make_error("ranks: got {}; want 1 to {}", options.ranks, kMaxRanks);
  }
  if (options.command.empty()) return make_error("command: got nothing; want a program to start");
  if (!(options.grace_s >= 0 && options.grace_s <= 86400)) {
    return make_error("grace: got {} s; want 0 to 86400", options.grace_s);
  }
  open_standard_streams();
  Supervisor supervisor(options.grace_s);
  COPUS_TRY_VOID(supervisor.start(options));
  return supervisor.run();
}

}  // namespace copus
