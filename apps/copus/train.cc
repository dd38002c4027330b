// copus train in the program with the engine. This process supervises local ranks, or is one rank
// of a run.
#include "apps/copus/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "apps/copus/common.h"
#include "apps/copus/train_supervisor.h"
#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/train/comm/mesh.h"
#include "copus/train/comm/node_store.h"
#include "copus/train/device/device.h"
#include "copus/train/launch/signal_pipe.h"
#include "copus/train/launch/supervisor.h"
#include "copus/train/run/run.h"

namespace copus {
namespace {

std::atomic<bool> stop_asked{false};
std::atomic<int> stop_signal{SIGTERM};  // stays SIGTERM if only other ranks got a signal
std::atomic<Activity*> own_activity{nullptr};
extern "C" void ask_to_stop(int number) {
  // Before the first step there is nothing to save, and a rank that waits to meet the others does
  // not check for a stop.
  const Activity* activity = own_activity.load();
  if (activity == nullptr || activity->step() == 0) ::_exit(128 + number);
  stop_signal.store(number);
  stop_asked.store(true);
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);  // a second SIGINT ends the process at once
}

// Handles the signals that ask a run to stop; SIGHUP only if it is not ignored, as under nohup.
// Ignores SIGPIPE, so that the run goes on when the reader of its output goes away.
void listen_to_signals() {
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) std::signal(number, ask_to_stop);
  if (std::signal(SIGHUP, ask_to_stop) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

Result<Rendezvous> meet(const TrainArgs& args, const RankEnvironment& who) {
  Rendezvous rendezvous;
  rendezvous.timeout = to_milliseconds(*args.machine.timeout);
  rendezvous.rank = who.rank;
  rendezvous.world_size = who.world_size;
  rendezvous.master_address = who.master_address;
  rendezvous.cuda = *args.machine.device == DeviceKind::kCuda;
  if (who.world_size == 1) {
    rendezvous.store = local_store();
  } else if (!who.node_store.empty()) {
    auto joined = join_node_store(who.node_store, rendezvous.timeout);
    if (!joined) throw CommError(joined.error().message);  // a restart may help
    rendezvous.store = std::move(joined).value();
  } else if (who.rank == 0 && !who.store_is_served) {
    COPUS_TRY(const ServedStore served,
              serve_store(who.master_port, who.world_size, rendezvous.timeout));
    rendezvous.store = served.store;
  } else {
    auto joined =
        join_store(who.master_address, who.master_port, who.world_size, rendezvous.timeout);
    if (!joined) throw CommError(joined.error().message);  // a restart may help
    rendezvous.store = std::move(joined).value();
  }
  // torchrun's store outlives its attempts. Each attempt uses its own part of the store, so that it
  // does not read the keys of an earlier one.
  const auto attempt = environment_variable("TORCHELASTIC_RESTART_COUNT");
  rendezvous.store = part_of_store(rendezvous.store, "attempt" + attempt.value_or("0"));
  return rendezvous;
}

void print_outcome(const RunOutcome& outcome, const RunOptions& run, bool json) {
  if (json) {
    Json out = {{"reason", to_string(outcome.reason)},
                {"steps", outcome.steps},
                {"samples", outcome.samples},
                {"loss", number_or_null(outcome.loss)},
                {"held_out_loss", number_or_null(outcome.held_out_loss)},
                {"seconds", outcome.seconds.v},
                {"tokens_per_s", outcome.tokens_per_s},
                {"moves", outcome.moves},
                {"pause_s", outcome.pause.v},
                {"run_dir", run.run_dir}};
    fmt::print("{}\n", out.dump(2));
    return;
  }
  const std::string loss = outcome.loss ? fmt::format(", loss {:.4f}", *outcome.loss) : "";
  const std::string held_out =
      outcome.held_out_loss ? fmt::format(", held-out {:.4f}", *outcome.held_out_loss) : "";
  const std::string text =
      fmt::format("{}{}, {}{}{}; {:.1f} s, {:.0f} tokens/s; {}\n", outcome.summary,
                  counted(outcome.steps, "step"), counted(outcome.samples, "sample"), loss,
                  held_out, outcome.seconds.v, outcome.tokens_per_s, run.run_dir);
  std::fputs(text.c_str(), stdout);
  // It is no error if these lines cannot be printed: the run is done, and its directory records it.
  std::fflush(stdout);
  std::clearerr(stdout);
}

// What leave() needs at the end of a rank. The groups must outlive run_rank() after a failure,
// because their destructors would wait for ranks that are gone.
struct RankEnd {
  std::unique_ptr<GroupCache> groups;
  bool well = false;  // the run did not fail
};

// Ends this rank, or returns its exit code. On GPUs the rank does not wait for c10d or CUDA to shut
// down after a failure: the process ends at once. After a good run it waits at most --timeout.
int leave(RankEnd& end, int code) {
  if (!end.groups) return code;
  const Rendezvous& where = end.groups->rendezvous();
  if (!where.cuda || where.world_size == 1) return code;
  if (!end.well) {
    std::fflush(nullptr);
    std::_Exit(code);
  }
  std::thread([limit = where.timeout, code] {
    std::this_thread::sleep_for(limit);
    std::_Exit(code);
  }).detach();
  end.groups->shut_down();
  return code;
}

Result<int> run_rank(const TrainArgs& args, RunOptions run, const RankEnvironment& who,
                     RankEnd& end) {
  listen_to_signals();
  COPUS_TRY(run.trainer.device,
            choose_device(*args.machine.device, who.local_rank, who.local_world_size));
  if (who.rank == 0) {
    const auto node = node_peak(run.trainer.device, run.trainer.precision(), who.local_world_size);
    if (node) run.peak = *node * (static_cast<double>(who.world_size) / who.local_world_size);
  }
  if (const auto held = environment_variable(kHeldDirectory)) {
    COPUS_TRY(const std::int64_t descriptor, parse_integer(*held, kHeldDirectory, 0, 1 << 30));
    run.held_directory = static_cast<int>(descriptor);
  }
  COPUS_TRY(const Rendezvous rendezvous, meet(args, who));
  // Never freed, because the signal handler may still run at the end of the process.
  static const auto* const kept = new std::shared_ptr<Activity>(rendezvous.activity);
  own_activity = kept->get();
  end.groups = std::make_unique<GroupCache>(rendezvous);
  std::optional<Progress> progress;
  if (who.rank == 0) progress.emplace(*args.json ? stderr : stdout);
  COPUS_TRY(const RunOutcome outcome,
            run_training(*end.groups, run, progress ? &*progress : nullptr, stop_asked));
  end.well = outcome.reason != EndReason::kFailed;
  if (outcome.reason == EndReason::kFailed) return run_failed(outcome.error);
  if (outcome.reason == EndReason::kSignal) {
    const int number = stop_signal.load();
    if (who.rank == 0) print_outcome(outcome, run, *args.json);
    if (!outcome.error.empty()) return run_failed(outcome.error);
    // The run did what the signal asked for: it saved a checkpoint, from which it can go on later.
    if (outcome.saved && number != SIGINT) return kOk;
    // Copus's supervisor reports the signal for its ranks.
    if (who.rank == 0 && who.launcher != Launcher::kCopus) {
      report(make_error("stopped by {}", signal_name(number)));
    }
    return 128 + number;
  }
  // All ranks know the outcome from here on. Rank 0 reports it, and its exit code is the run's.
  if (who.rank != 0) return kOk;
  // A restart would end in the same way; kVerdictExit tells the supervisor not to try one.
  const auto verdict = [&](const std::string& message) {
    run_failed(message);
    return who.launcher == Launcher::kCopus ? kVerdictExit : kAnswerIsNo;
  };
  if (!outcome.error.empty()) return verdict(outcome.error);
  print_outcome(outcome, run, *args.json);
  if (run.until_loss && outcome.reason != EndReason::kLoss) {
    return verdict(fmt::format("--until-loss: {} is not reached", *run.until_loss));
  }
  return kOk;
}

}  // namespace

int train(TrainRequest request, TrainArgs& args, const std::vector<std::string>& command) {
  if (!request.environment && (request.ranks > 1 || request.restarts.max_restarts > 0)) {
    return run_supervisor(args, request, command.front());
  }
  // libtorch throws exceptions; they must not leave this function.
  RankEnd end;
  try {
    const Result<int> code = run_rank(args, std::move(request.run),
                                      request.environment.value_or(RankEnvironment{}), end);
    return leave(end, code ? *code : report(code.error()));
  } catch (const std::exception& error) {
    return leave(end, run_failed(first_line(error)));
  }
}

}  // namespace copus
