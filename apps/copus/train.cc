// copus train where the engine is: this process is the supervisor of local ranks, or one rank of a
// run.
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
std::atomic<int> stop_signal{SIGTERM};  // another rank may have got the signal alone
std::atomic<Activity*> own_activity{nullptr};
extern "C" void ask_to_stop(int number) {
  // Before the first step nothing is there to save, and what waits for a meeting hears nothing.
  const Activity* activity = own_activity.load();
  if (activity == nullptr || activity->step() == 0) ::_exit(128 + number);
  stop_signal.store(number);
  stop_asked.store(true);
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);  // a second one does not wait
}

// SIGHUP only where it is not ignored (nohup). A reader of our output that goes away must not take
// the run with it.
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
    if (!joined) throw CommError(joined.error().message);  // starting again may help
    rendezvous.store = std::move(joined).value();
  } else if (who.rank == 0 && !who.store_is_served) {
    COPUS_TRY(const ServedStore served,
              serve_store(who.master_port, who.world_size, rendezvous.timeout));
    rendezvous.store = served.store;
  } else {
    auto joined =
        join_store(who.master_address, who.master_port, who.world_size, rendezvous.timeout);
    if (!joined) throw CommError(joined.error().message);  // starting again may help
    rendezvous.store = std::move(joined).value();
  }
  // torchrun's outlives its attempts: what an earlier one said there is not this one's.
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
  // Lines for a person may be lost on the way: the run is what was asked for, and it is recorded.
  std::fflush(stdout);
  std::clearerr(stdout);
}

// Where a rank of a run is left. The groups outlive a failure: their destructors would wait for
// ranks that are gone.
struct RankEnd {
  std::unique_ptr<GroupCache> groups;
  bool well = false;  // all ranks ended alike
};

// On GPUs nothing of c10d's or CUDA's is waited for: after a failure the process ends at once, and
// after a run that went well within --timeout.
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
  // Never freed: a signal may come as late as it likes.
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
    // What it was asked for is done: it can go on later as if nothing had been.
    if (outcome.saved && number != SIGINT) return kOk;
    // The supervisor says it for its ranks.
    if (who.rank == 0 && who.launcher != Launcher::kCopus) {
      report(make_error("stopped by {}", signal_name(number)));
    }
    return 128 + number;
  }
  // The rest is agreed: one rank speaks for all, and its exit code is the run's.
  if (who.rank != 0) return kOk;
  // Starting again would end the same.
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
  // libtorch's exceptions end here.
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
