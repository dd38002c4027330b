#include "apps/copus/train_supervisor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <numeric>
#include <system_error>

#include "apps/copus/common.h"
#include "copus/base/remove_tree.h"
#include "copus/base/seconds_since.h"
#include "copus/base/to_stderr.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/health/stall.h"
#include "copus/train/health/watchdog.h"
#include "copus/train/launch/signal_pipe.h"
#include "copus/train/options/run_data.h"
#include "copus/train/record/run_directory.h"

namespace copus {

int run_failed(const std::string& message) {
  report(Error{message});
  return kAnswerIsNo;
}

namespace {

void say(const std::string& text) { to_stderr(fmt::format("copus: {}\n", text)); }

// The backstop for ranks that nobody waits for: all of them stopped, or the only one. Whoever does
// wait finds out first.
class Silence {
 public:
  Silence(std::string folder, Seconds timeout) : folder_(std::move(folder)), timeout_(timeout) {}

  std::string operator()(const std::vector<int>& alive) {
    // Counted in looks of at most a few seconds each: that this process was stopped is not the
    // ranks' silence.
    const auto now = std::chrono::steady_clock::now();
    const Seconds passed = min(Seconds(2), to_seconds(now - last_));
    last_ = now;
    std::vector<Stall> stalls;
    std::map<int, RankActivity> seen;
    for (RankActivity& rank : read_activities(folder_, alive)) seen[rank.rank] = std::move(rank);
    for (const int rank : alive) {
      Heard& heard = heard_[rank];
      const auto file = seen.find(rank);
      // A rank never takes its own away: whoever did has silenced nobody.
      if (file == seen.end() && heard.ever) continue;
      if (file != seen.end() && (!heard.ever || file->second.ticks != heard.ticks)) {
        heard = {true, file->second.ticks, Seconds()};
        continue;
      }
      heard.silent += passed;
      if (heard.silent < limit(heard)) continue;
      stalls.push_back({heard.ever ? file->second : RankActivity(), true, heard.silent});
      stalls.back().rank.rank = rank;
    }
    return to_text(stalls);
  }

 private:
  struct Heard {
    bool ever = false;  // without a file so far: it starts
    std::uint64_t ticks = 0;
    Seconds silent;
  };
  // Long enough that the ranks' own limits come first, also where one waits for one that waits.
  Seconds limit(const Heard& heard) const {
    return 2 * longest_time(heard.ever ? Doing::kBetweenSteps : Doing::kStarting, timeout_) +
           Seconds(10);
  }

  std::string folder_;
  Seconds timeout_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::map<int, Heard> heard_;
};

std::optional<PublishedCheckpoint> newest_checkpoint(const std::string& run_dir) {
  const auto found = list_checkpoints(run_dir);
  if (!found || found->empty()) return std::nullopt;
  return found->back();
}

std::optional<std::int64_t> step_of(const std::optional<PublishedCheckpoint>& checkpoint) {
  return checkpoint ? std::optional(checkpoint->step) : std::nullopt;
}

// Ranks that the next attempt cannot count on: killed by somebody else, or hung.
std::vector<int> lost_ranks(const SupervisorOutcome& outcome, const std::string& folder, int ranks,
                            Seconds timeout) {
  if (!outcome.killed.empty()) return outcome.killed;
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> lost;
  for (const Stall& stall : stalled_before_the_end(read_activities(folder, all), timeout / 2)) {
    lost.push_back(stall.rank.rank);
  }
  return lost;
}

// One attempt, with a meeting point of its own. The ranks hold the directory's lock, too.
Result<SupervisorOutcome> attempt(const TrainArgs& args, const RunDirectory& directory, int ranks,
                                  const std::vector<std::string>& command,
                                  const std::string& why_again) {
  COPUS_TRY(const double timeout_s, collective_timeout_s(args));
  COPUS_TRY(const int port, rendezvous_port(args));
  COPUS_TRY(const ServedStore served,
            serve_store(port, ranks,
                        std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000))));
  SupervisorOptions options;
  options.ranks = ranks;
  options.command = command;
  options.master_port = served.port;
  COPUS_TRY(const double grace_s, save_grace_s(args.failures));
  options.save_grace = Seconds(grace_s);
  if (!why_again.empty()) options.variables.push_back("COPUS_RESTART_WHY=" + why_again);
  options.kept_open = directory.descriptor();
  options.variables.push_back(fmt::format("{}={}", kHeldDirectory, directory.descriptor()));
  options.stalled = Silence(activity_folder(directory.path()), Seconds(timeout_s));
  return supervise(options);
}

// The run as its directory has it: what it has become since it was first started (its batch, its
// layout) is not to be undone by the command line of then.
std::vector<std::string> resuming(const TrainArgs& args, const RunOptions& run,
                                  const std::vector<std::string>& command) {
  std::error_code failed;
  if (!std::filesystem::exists(run.run_dir + "/config.toml", failed)) {
    std::vector<std::string> same = command;  // it failed before it had begun
    set_option(same, "--resume", "");
    return same;
  }
  std::vector<std::string> again = {command.front(), "train", "--resume", "--run-dir", run.run_dir};
  if (args.json) again.emplace_back("--json");
  // Until a checkpoint is on these data, the last one is on others.
  if (args.checkpoint.other_data) again.emplace_back("--other-data");
  return again;
}

// As many as are left, at the plan that is predicted to be best for them.
void shrink(TrainerOptions trainer, const std::optional<PublishedCheckpoint>& from, int ranks,
            std::vector<std::string>& command) {
  set_option(command, "--ranks", std::to_string(ranks));
  set_option(command, "--plan", "best");
  if (from) {
    const Result<Manifest> manifest = read_manifest(from->folder);
    if (manifest) trainer.global_batch = manifest->global_batch;
  }
  const std::int64_t batch = nearest_batch(trainer, ranks);
  if (batch == trainer.global_batch) return;
  set_option(command, "--global-batch", std::to_string(batch));
  say(fmt::format("no layout of {} ranks can train a batch of {}: going on with {}, the nearest",
                  ranks, trainer.global_batch, batch));
}

}  // namespace

void set_option(std::vector<std::string>& command, const std::string& name,
                const std::string& value) {
  for (std::size_t i = 0; i < command.size();) {
    const auto at = command.begin() + static_cast<std::ptrdiff_t>(i);
    if (command[i] == name) {
      const bool has_value = !value.empty() && i + 1 < command.size();
      command.erase(at, at + (has_value ? 2 : 1));
    } else if (command[i].starts_with(name + "=")) {
      command.erase(at);
    } else {
      ++i;
    }
  }
  command.push_back(name);
  if (!value.empty()) command.push_back(value);
}

int run_supervisor(const TrainArgs& args, const RunOptions& run, int ranks,
                   const RestartOptions& options, std::vector<std::string> command) {
  // Between two attempts too.
  std::signal(SIGPIPE, SIG_IGN);
  // What every rank would complain of, said once; the directory last, so that nothing is left by
  // what failed.
  const Result<double> timeout_s = collective_timeout_s(args);
  if (!timeout_s) return report(timeout_s.error());
  if (const Result<double> grace = save_grace_s(args.failures); !grace) {
    return report(grace.error());
  }
  if (const auto port = rendezvous_port(args); !port) return report(port.error());
  if (const auto data = open_data(run); !data) return report(data.error());
  // Held until the last attempt is over: between two of them the run is nobody else's either.
  const auto directory = RunDirectory::open(run.run_dir, run.checkpoint.resume);
  if (!directory) return report(directory.error());
  if (args.run_dir.empty()) command.insert(command.end(), {"--run-dir", run.run_dir});

  const std::string folder = activity_folder(run.run_dir);
  Restarts restarts(options, ranks, step_of(newest_checkpoint(run.run_dir)));
  const int first_ranks = ranks;
  std::string why_again;
  for (;;) {
    std::error_code ignored;
    remove_tree(folder, ignored);  // an earlier attempt's
    const Result<SupervisorOutcome> outcome = attempt(args, *directory, ranks, command, why_again);
    // What could not even be started is bad input the first time, and a failed run later.
    if (!outcome) {
      return restarts.made() == 0 ? report(outcome.error()) : run_failed(outcome.error().message);
    }
    // Whoever removed the run does not want it begun again.
    if (!Restarts::may_help(*outcome) || directory->removed()) {
      const bool good = outcome->exit_code == 0 || outcome->exit_code == 128 + SIGINT;
      if (good) remove_tree(folder, ignored);
      if (!outcome->message.empty()) report(Error{outcome->message});
      return outcome->exit_code;
    }
    const std::optional<PublishedCheckpoint> from = newest_checkpoint(run.run_dir);
    const Result<Attempt> next = restarts.next(
        *outcome, lost_ranks(*outcome, folder, ranks, Seconds(*timeout_s)), step_of(from));
    if (!next) {
      report(next.error());
      return outcome->exit_code;
    }
    why_again = outcome->message;
    say(fmt::format("restart {} of {} in {:.0f} s, {}, {} of {} ranks: {}", restarts.made(),
                    options.max_restarts, next->wait.v,
                    from ? fmt::format("from the checkpoint of step {}", from->step)
                         : std::string("from the beginning, for there is no checkpoint"),
                    next->ranks, ranks, why_again));
    command = resuming(args, run, command);
    // Until the run has written its own config.toml it does not know of ranks that are gone.
    if (next->ranks != first_ranks) shrink(run.trainer, from, next->ranks, command);
    ranks = next->ranks;
    const Result<std::optional<int>> signal = sleep_until_signal(next->wait);
    if (signal && *signal) {
      report(make_error("stopped by {} between two attempts", signal_name(**signal)));
      return 128 + **signal;
    }
  }
}

}  // namespace copus
