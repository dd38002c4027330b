#include "apps/copus/train_supervisor.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <system_error>
#include <tuple>

#include "apps/copus/common.h"
#include "copus/base/remove_tree.h"
#include "copus/base/seconds_since.h"
#include "copus/base/to_stderr.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/comm/comm.h"
#include "copus/train/comm/node_store.h"
#include "copus/train/health/stall.h"
#include "copus/train/health/watchdog.h"
#include "copus/train/launch/signal_pipe.h"
#include "copus/train/record/run_directory.h"

namespace copus {

int run_failed(const std::string& message) {
  report(Error{message});
  return kAnswerIsNo;
}

namespace {

void say(const std::string& text) { to_stderr(fmt::format("copus: {}\n", text)); }

// Finds silent ranks that no other rank waits for: all ranks are stopped, or the only one is. In
// all other cases a waiting rank notices first. Returns a text on the ranks to end; empty if there
// are none.
class Silence {
 public:
  Silence(std::string folder, Seconds timeout) : folder_(std::move(folder)), timeout_(timeout) {}

  std::string operator()(const std::vector<int>& alive) {
    // One call adds at most 2 s of silence, so that the time during which this process itself was
    // stopped does not count.
    const auto now = std::chrono::steady_clock::now();
    const Seconds passed = min(Seconds(2), to_seconds(now - last_));
    last_ = now;
    std::vector<Stall> stalls;
    std::map<int, RankActivity> seen;
    for (RankActivity& rank : read_activities(folder_, alive)) seen[rank.rank] = std::move(rank);
    for (const int rank : alive) {
      Heard& heard = heard_[rank];
      const auto file = seen.find(rank);
      // A rank never removes its own file. If someone else removed it, the rank does not count as
      // silent.
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
    bool ever = false;  // false: no file yet, because the rank is starting
    std::uint64_t ticks = 0;
    Seconds silent;
  };
  // Long enough for the ranks' own limits to act first, even if a rank waits for one that itself
  // waits for another.
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

// Returns the ranks that the next attempt does not use: those killed by a signal that the
// supervisor did not send, or else those that hung.
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

// Runs one attempt, with its own meeting point. The ranks inherit the lock of the run directory.
Result<SupervisorOutcome> attempt(const TrainArgs& args, const RunDirectory& directory, int ranks,
                                  const std::vector<std::string>& command,
                                  const std::string& why_again) {
  const Seconds timeout = *args.machine.timeout;
  const auto port = static_cast<int>(args.machine.port.value_or(0));
  ServedStore served;
  std::unique_ptr<NodeStoreServer> node_store;
  if (port > 0) {
    COPUS_TRY(served, serve_store(port, ranks, to_milliseconds(timeout)));
  } else {
    COPUS_TRY(node_store, NodeStoreServer::start());
  }
  SupervisorOptions options;
  options.ranks = ranks;
  options.command = command;
  options.master_port = served.port;
  if (node_store) options.node_store = node_store->name();
  options.save_grace = *args.failures.grace;
  if (!why_again.empty()) options.variables.push_back("COPUS_RESTART_WHY=" + why_again);
  options.kept_open = directory.descriptor();
  options.variables.push_back(fmt::format("{}={}", kHeldDirectory, directory.descriptor()));
  options.stalled = Silence(activity_folder(directory.path()), timeout);
  return supervise(options);
}

std::vector<std::string> command_of(const std::string& program, const TrainArgs& args) {
  std::vector<std::string> command = {program, "train"};
  for (std::string& word : command_words(args, From::kCommandLine)) command.push_back(word);
  return command;
}

// Tells a file from the one that replaces it, even if both have the same content.
using FileVersion = std::tuple<dev_t, ino_t, time_t, long>;

// Returns nothing if there is no such file.
std::optional<FileVersion> version_of(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) return std::nullopt;
  return FileVersion(found.st_dev, found.st_ino, found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
}

// Takes the run's batch and layout from its directory, because the command line of the first start
// may be out of date.
void ask_for_the_run_as_it_is(const TrainArgs& args, TrainArgs& again) {
  again.run_dir.set(*args.run_dir, From::kCommandLine);
  if (*args.json) again.json.set(true, From::kCommandLine);
  // Until a checkpoint with the new data exists, the newest checkpoint is from the old data.
  if (*args.checkpoint.other_data) again.checkpoint.other_data.set(true, From::kCommandLine);
}

// Uses the ranks that are left, at the plan that is predicted to be fastest for them.
void shrink(TrainerOptions trainer, const std::optional<PublishedCheckpoint>& from, int ranks,
            TrainArgs& args) {
  args.ranks.set(ranks, From::kCommandLine);
  args.plan.set(kBestPlan, From::kCommandLine);
  if (from) {
    const Result<Manifest> manifest = read_manifest(from->folder);
    if (manifest) trainer.global_batch = manifest->global_batch;
  }
  const std::int64_t batch = nearest_batch(trainer, ranks);
  if (batch == trainer.global_batch) return;
  args.global_batch.set(batch, From::kCommandLine);
  say(fmt::format("no layout of {} ranks can train a batch of {}: going on with {}, the nearest",
                  ranks, trainer.global_batch, batch));
}

}  // namespace

int run_supervisor(TrainArgs& args, const TrainRequest& request, const std::string& program) {
  const RunOptions& run = request.run;
  const RestartOptions& options = request.restarts;
  int ranks = request.ranks;
  const Seconds timeout = *args.machine.timeout;
  // The run must go on when the reader of its output goes away, also between two attempts.
  std::signal(SIGPIPE, SIG_IGN);
  // Held until the last attempt ends, so that no other run can take the directory between two
  // attempts.
  const auto directory = RunDirectory::open(run.run_dir, run.checkpoint.resume);
  if (!directory) return report(directory.error());
  args.run_dir.set(run.run_dir, From::kCommandLine);
  std::vector<std::string> command = command_of(program, args);

  const std::string folder = activity_folder(run.run_dir);
  Restarts restarts(options, ranks, step_of(newest_checkpoint(run.run_dir)));
  const int first_ranks = ranks;
  const std::string config = run.run_dir + "/config.toml";
  const std::optional<FileVersion> config_before = version_of(config);
  bool begun = false;  // an attempt has written its config.toml
  std::string why_again;
  for (;;) {
    std::error_code ignored;
    remove_tree(folder, ignored);  // left by an earlier attempt
    const Result<SupervisorOutcome> outcome = attempt(args, *directory, ranks, command, why_again);
    // Processes that cannot be started are bad input the first time, and a failed run later.
    if (!outcome) {
      return restarts.made() == 0 ? report(outcome.error()) : run_failed(outcome.error().message);
    }
    // If someone removed the run directory, the run is not started again.
    if (!Restarts::may_help(*outcome) || directory->removed()) {
      const bool good = outcome->exit_code == 0 || outcome->exit_code == 128 + SIGINT;
      if (good) remove_tree(folder, ignored);
      if (!outcome->message.empty()) report(Error{outcome->message});
      return outcome->exit_code;
    }
    const std::optional<PublishedCheckpoint> from = newest_checkpoint(run.run_dir);
    const Result<Attempt> next =
        restarts.next(*outcome, lost_ranks(*outcome, folder, ranks, timeout), step_of(from));
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
    // Before that there is no config.toml, or with --resume the old one, which lacks the options
    // that the command line changes. So the command line is used again.
    const std::optional<FileVersion> config_now = version_of(config);
    begun = config_now && (begun || config_now != config_before);
    TrainArgs as_it_is;
    ask_for_the_run_as_it_is(args, as_it_is);
    TrainArgs& again = begun ? as_it_is : args;
    again.checkpoint.resume.set(true, From::kCommandLine);
    // The config.toml may still have the first number of ranks, so the command line gives the new
    // one.
    if (next->ranks != first_ranks) shrink(run.trainer, from, next->ranks, again);
    command = command_of(program, again);
    ranks = next->ranks;
    const Result<std::optional<int>> signal = sleep_until_signal(next->wait);
    if (signal && *signal) {
      report(make_error("stopped by {} between two attempts", signal_name(**signal)));
      return 128 + **signal;
    }
  }
}

}  // namespace copus
