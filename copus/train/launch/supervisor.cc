// The supervisor is one loop that waits for the ranks' pipes and for this process's signals.
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

#include "copus/base/seconds_since.h"
#include "copus/base/spawn.h"
#include "copus/base/standard_streams.h"
#include "copus/base/to_stderr.h"
#include "copus/train/launch/rank_output.h"
#include "copus/train/launch/rank_process.h"
#include "copus/train/launch/signal_pipe.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxLocalRanks = 4096;

// Ranks often fail together: one is killed, and the others lose their connections to it. If a rank
// dies by a signal within this time of the first failure, that death is taken for the cause.
constexpr auto kCauseWindow = std::chrono::seconds(1);

std::string describe(const RankProcess& process, const RankExit& exit) {
  const std::string words =
      process.last_words.empty() ? "" : "; its last words: " + process.last_words;
  if (exit.signal == 0) {
    const int code = exit.code == kVerdictExit ? 1 : exit.code;
    return fmt::format("rank {} ended with exit code {}{}", process.rank, code, words);
  }
  // These signals come from outside, so the rank's last words do not explain its end.
  const bool from_outside = exit.signal == SIGKILL || exit.signal == SIGTERM;
  return fmt::format("rank {} was killed by signal {} ({}){}", process.rank, exit.signal,
                     ::strsignal(exit.signal), from_outside ? "" : words);
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options) : options_(options) {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() {
    for (RankProcess& process : ranks_) {
      signal_rank(process, SIGKILL);
      while (process.pid > 0 && !reap_rank(process)) ::usleep(1000);
      drain_output(process);
    }
  }

  Result<void> start() {
    COPUS_TRY_VOID(signals_.open());
    COPUS_TRY(const std::string path, find_program(options_.command.front()));
    std::vector<std::string> inherited = options_.variables;
    for (std::string& each : own_variables()) inherited.push_back(std::move(each));
    const int cores = usable_cores();
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const bool keep_stdout = rank == 0;
      COPUS_TRY(RankProcess process,
                start_rank(rank, path, options_.command,
                           rank_variables(inherited, rank, options_.ranks, options_.master_port,
                                          options_.node_store, cores),
                           keep_stdout, options_.kept_open));
      ranks_.push_back(std::move(process));
    }
    return {};
  }

  SupervisorOutcome run() {
    while (alive()) {
      wait();
      for (const int number : signals_.take()) on_signal(number);
      // Reaps all ranks that have ended before stop() or kill() signals any. If two ranks ended
      // together, neither may look as if the supervisor ended it.
      for (RankProcess& process : ranks_) reap(process);
      look_for_stalls();
      if (failed_at_) stop();
      if (kill_at_ && Clock::now() >= *kill_at_) kill();
    }
    // All ranks did what the signal asked for: they saved and ended well.
    if (outcome_.interrupted && all_ended_well_ && outcome_.exit_code != 128 + SIGINT) {
      outcome_.exit_code = 0;
      outcome_.message.clear();
    }
    return outcome_;
  }

 private:
  bool alive() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const RankProcess& process) { return process.pid > 0; });
  }

  // Waits for output, a signal, the end of a rank or the end of the grace, and passes output on.
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
    if (!stopping_ && options_.stalled) return 1000;
    if (!kill_at_ || killed_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
  }

  void on_signal(int number) {
    if (number == SIGINT && ++interrupts_ > 1) kill();
    if (!outcome_.interrupted) {
      outcome_.interrupted = true;
      const std::string stopped = fmt::format("stopped by {}", signal_name(number));
      // A failure before the signal stays the reason for the run's end. But the run counts as
      // interrupted, so it is not started again.
      outcome_.message = failed_at_ ? outcome_.message + "; then " + stopped : stopped;
      if (!failed_at_) outcome_.exit_code = 128 + number;
      if (number == SIGINT && !failed_at_ && ::isatty(STDERR_FILENO) == 1) {
        to_stderr("\ncopus: ending after this step; press Ctrl-C again to end at once\n");
      }
    }
    stop();
  }

  void reap(RankProcess& process) {
    if (process.pid <= 0) return;
    const std::optional<RankExit> exit = reap_rank(process);
    if (!exit) return;
    drain_output(process);
    if (exit->code == 0 && exit->signal == 0) return;
    all_ended_well_ = false;
    if (outcome_.interrupted) {
      // The other ranks cannot save without this one: ends them after the short grace.
      kill_at_ = std::min(*kill_at_, in(options_.grace));
      return;
    }
    const bool ours =
        (exit->signal == SIGTERM && stopping_) || (exit->signal == SIGKILL && killed_);
    const bool is_first = !failed_at_;
    // A rank that aborts after the first failure is not counted: it may abort because it lost the
    // connection to the failed rank.
    if (exit->signal != 0 && !ours && (is_first || exit->signal != SIGABRT)) {
      outcome_.killed.push_back(process.rank);
    }
    const bool is_cause = failed_at_ && exit->signal != 0 && !ours && outcome_.signal == 0 &&
                          Clock::now() - *failed_at_ <= kCauseWindow;
    if (is_first) failed_at_ = Clock::now();
    if (!is_first && !is_cause) return;
    outcome_.verdict = exit->code == kVerdictExit;
    outcome_.exit_code = exit->signal != 0 || outcome_.verdict ? 1 : exit->code;
    outcome_.failed_rank = process.rank;
    outcome_.signal = exit->signal;
    outcome_.message = describe(process, *exit);
  }

  // Asks all ranks to end, by SIGTERM. Does so once.
  void stop() {
    if (std::exchange(stopping_, true)) return;
    for (const RankProcess& process : ranks_) signal_rank(process, SIGTERM);
    kill_at_ = in(outcome_.interrupted ? options_.save_grace : options_.grace);
  }

  static Clock::time_point in(Seconds time) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(to_duration(time));
  }

  void look_for_stalls() {
    if (stopping_ || failed_at_ || !options_.stalled) return;
    std::vector<int> living;
    for (const RankProcess& process : ranks_) {
      if (process.pid > 0) living.push_back(process.rank);
    }
    const std::string why = options_.stalled(living);
    if (why.empty()) return;
    failed_at_ = Clock::now();
    outcome_.exit_code = 1;
    outcome_.message = why;
  }

  void kill() {
    if (std::exchange(killed_, true)) return;
    if (outcome_.interrupted && interrupts_ < 2) {
      outcome_.message += "; the ranks did not end in time and were killed";
    }
    for (const RankProcess& process : ranks_) signal_rank(process, SIGKILL);
  }

  const SupervisorOptions& options_;
  SignalPipe signals_;
  std::vector<RankProcess> ranks_;
  SupervisorOutcome outcome_;
  std::optional<Clock::time_point> failed_at_;
  std::optional<Clock::time_point> kill_at_;
  bool stopping_ = false;
  bool killed_ = false;
  bool all_ended_well_ = true;
  int interrupts_ = 0;
};

}  // namespace

Result<SupervisorOutcome> supervise(const SupervisorOptions& options) {
  if (options.ranks < 1 || options.ranks > kMaxLocalRanks) {
    return field_error("ranks", "got {}; want 1 to {}", options.ranks, kMaxLocalRanks);
  }
  if (options.command.empty())
    return field_error("command", "got nothing; want a program to start");
  for (const Seconds grace : {options.grace, options.save_grace}) {
    if (!(grace >= Seconds(0) && grace <= Seconds(86400))) {
      return field_error("grace", "got {} s; want 0 to 86400", grace.v);
    }
  }
  open_standard_streams();
  Supervisor supervisor(options);
  COPUS_TRY_VOID(supervisor.start());
  return supervisor.run();
}

}  // namespace copus
