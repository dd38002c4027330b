#include "copus/train/run/run.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/base/to_stderr.h"
#include "copus/train/checkpoint/run_state.h"
#include "copus/train/comm/agree.h"
#include "copus/train/health/watchdog.h"
#include "copus/train/options/open_data.h"
#include "copus/train/record/event_file.h"
#include "copus/train/record/phases.h"
#include "copus/train/run/deciders.h"
#include "copus/train/run/live_job.h"
#include "copus/train/run/same_options.h"
#include "copus/train/run/start.h"

namespace copus {
namespace {

// The run's record on rank 0: its directory, the stream of events, and the sinks that receive them.
struct Record {
  Record(RunDirectory open, Progress* progress) : directory(std::move(open)) {
    if (progress != nullptr) events.subscribe(*progress);
    events.subscribe(file);
  }

  RunDirectory directory;
  EventFile file{directory};
  std::optional<Phases> phases;  // made when the first step and configuration are known
  EventStream events;
};

Result<std::unique_ptr<Record>> open_record(const RunOptions& options, Progress* progress) {
  COPUS_TRY(RunDirectory directory,
            RunDirectory::open(options.run_dir, options.checkpoint.resume, options.held_directory));
  if (options.checkpoint.save) COPUS_TRY_VOID(prepare_checkpoints(options.run_dir));
  // This run has the directory's lock, so no other process will complete what is half-written here.
  // Leftovers that cannot be removed do no harm.
  if (const Result<void> cleaned = clean_leftovers(options.run_dir); !cleaned) {
    to_stderr(fmt::format("copus: {}\n", cleaned.error().message));
  }
  return std::make_unique<Record>(std::move(directory), progress);
}

// Rank 0 opens and locks the run directory; the other ranks wait for it before they write there.
// Returns null on the other ranks.
Result<std::unique_ptr<Record>> enter_directory(const Rendezvous& where, const RunOptions& options,
                                                Progress* progress) {
  std::unique_ptr<Record> record;
  const Result<void> entered = on_rank_0(where, "copus/directory", [&]() -> Result<void> {
    COPUS_TRY(record, open_record(options, progress));
    return {};
  });
  if (!entered) return entered.error();
  return record;
}

Result<void> write_config(const RunDirectory& directory, const RunOptions& options) {
  if (!options.changed.empty()) COPUS_TRY_VOID(directory.keep_before("config", ".toml"));
  return directory.write_text("config.toml", options.config);
}

WatchdogOptions watching(const Rendezvous& where) {
  WatchdogOptions options;
  options.limit = to_seconds(where.timeout);
  options.world_size = where.world_size;
  options.say = [](const std::string& line) {
    to_stderr(fmt::format("copus: stalled: {}\n", line));
  };
  options.give_up = [](const std::string& line) {
    to_stderr(fmt::format("copus: error: {}\n", line));
    std::_Exit(1);  // the thread that hangs cannot be asked to end
  };
  return options;
}

// Returns the end of an error message: the checkpoint from which a failed run can continue.
std::string last_checkpoint(const std::string& run_dir) {
  const auto saved = list_checkpoints(run_dir);
  if (!saved || saved->empty()) return "";
  return fmt::format("; the last checkpoint is {}", saved->back().folder);
}

// Fills in what a run that could not be resumed had reached, from the newest readable checkpoint.
void take_saved(const std::string& run_dir, RunOutcome& outcome) {
  const auto saved = list_checkpoints(run_dir);
  if (!saved) return;
  for (auto checkpoint = saved->rbegin(); checkpoint != saved->rend(); ++checkpoint) {
    const Result<Manifest> manifest = read_manifest(checkpoint->folder);
    if (!manifest) continue;
    outcome.steps = manifest->step;
    outcome.samples = manifest->samples;
    if (const auto state = run_state_from_json(manifest->run, "")) outcome.loss = state->loss;
    return;
  }
}

std::string describe(const CalibrationBelief::Interval& c) {
  if (c.low == c.high) return fmt::format("{:.3g} times", c.median);
  return fmt::format("what was believed of it, at last {:.2g} ({:.2g} to {:.2g}) times", c.median,
                     c.low, c.high);
}

// Returns a text that says what the moves gained, or "" if there were none.
std::string summary_of(const Phases& phases, const Controller& controller) {
  if (phases.moves() == 0) return "";
  std::string text = phases.table();
  const StepTime start = controller.start_step_time();
  if (const std::optional<double> gain = phases.gain(start.time)) {
    text += fmt::format(
        "Estimated progress, with {} of pauses: {:.2f} times that of a run that stays where it "
        "began "
        "(samples/s as measured; efficiency from a critical batch of {} the noise scale)\n",
        human_seconds(phases.pause()), *gain, describe(controller.calibration()));
  }
  return text;
}

EndEvent end_event(const RunOutcome& outcome) {
  return {.reason = outcome.reason,
          .error = outcome.error,
          .step = outcome.steps,
          .samples = outcome.samples,
          .loss = outcome.loss,
          .held_out_loss = outcome.held_out_loss,
          .seconds = outcome.seconds,
          .tokens_per_s = outcome.tokens_per_s,
          .moves = outcome.moves,
          .pause = outcome.pause};
}

Result<void> run_job(LiveJob& job, Decider& decider) {
  COPUS_TRY_VOID(job.begin());
  COPUS_TRY_VOID(drive(job, decider));
  return job.finish_saving();
}

// Returns rank 0's controller, with the state from the checkpoint if there is one, and nothing on
// the other ranks.
Result<std::optional<Controller>> ready_controller(const Rendezvous& where,
                                                   const RunOptions& options,
                                                   const RunStart& start) {
  std::optional<Controller> controller;
  if (where.rank == 0) {
    controller.emplace(make_controller(options.adapt, start.trainer->options(), start.adaptation));
  }
  if (!start.controller.is_null()) {
    COPUS_TRY_VOID(on_rank_0(where, "copus/controller", [&] {
      return controller->restore(start.controller, start.from + ": controller");
    }));
  }
  return controller;
}

// Trains. `outcome` says what the run has reached, also after an error or exception.
Result<void> train(GroupCache& groups, const RunOptions& options, const Dataset& data,
                   RunStart& start, Record* record, Progress* progress,
                   const std::atomic<bool>& stop_asked, RunOutcome& outcome) {
  const TrainerOptions& trainer = start.trainer->options();
  const Comm& world = *start.trainer->mesh().world;
  const Activity::Scope steps(world.activity(), Doing::kBetweenSteps);
  COPUS_TRY(std::optional<Controller> controller,
            ready_controller(groups.rendezvous(), options, start));
  RunLog log;
  std::unique_ptr<Decider> decider;
  if (controller) {
    decider = std::make_unique<LeadingDecider>(*controller, world, trainer.device);
    record->phases.emplace(short_name(trainer.plan), trainer.global_batch, start.step);
    record->events.subscribe(*record->phases);
    log = RunLog(record->events, progress);
  } else {
    decider = std::make_unique<FollowingDecider>(options.adapt.controller, world, trainer.device);
  }
  LiveJob job(groups, options, data, start, log, controller ? &*controller : nullptr, stop_asked);
  if (progress != nullptr) {
    progress->set_outlook(options.steps, [&job] { return job.remaining(); });
  }
  const auto take_outcome = [&] {
    outcome = job.outcome();
    if (progress != nullptr) progress->set_outlook(options.steps, nullptr);
  };
  Result<void> ran;
  try {
    ran = run_job(job, *decider);
  } catch (...) {
    take_outcome();
    throw;
  }
  take_outcome();
  if (controller) outcome.summary = summary_of(*record->phases, *controller);
  return ran;
}

}  // namespace

Result<RunOutcome> run_training(GroupCache& groups, const RunOptions& options, Progress* progress,
                                const std::atomic<bool>& stop_asked) {
  const Rendezvous& where = groups.rendezvous();
  COPUS_TRY(const Dataset data, open_data(options));
  COPUS_TRY_VOID(check_same_options(where, options, data));
  Activity& activity = *where.activity;
  // A new run enters its directory only after prepare_run() has found that it can begin.
  const bool resumes = options.checkpoint.resume;
  PreparedRun prepared;
  if (!resumes) {
    COPUS_TRY(prepared, prepare_run(groups, options));
  }
  // Declared before the objects that it watches, so that it also limits the time of their
  // destructors, which may wait for a GPU.
  std::optional<Watchdog> watchdog;
  COPUS_TRY(const std::unique_ptr<Record> record, enter_directory(where, options, progress));
  COPUS_TRY_VOID(activity.publish(activity_folder(options.run_dir), where.rank));
  watchdog.emplace(activity, watching(where));

  RunStart start;
  RunOutcome outcome;
  auto begin = std::chrono::steady_clock::now();
  // Returns an error only for bad input.
  const auto find_start = [&]() -> Result<void> {
    if (resumes) {
      COPUS_TRY(start, resume_run(groups, options, data, [&](const std::string& text) {
                  if (progress != nullptr) progress->say(text);
                }));
      outcome.steps = start.step;
      outcome.samples = start.samples;
      outcome.loss = start.loss;
    }
    // Writes the config only now, when the run can begin or continue with these options.
    return on_rank_0(where, "copus/config",
                     [&] { return write_config(record->directory, options); });
  };
  const auto begin_and_train = [&]() -> Result<void> {
    begin = std::chrono::steady_clock::now();
    if (!resumes) {
      COPUS_TRY(start, begin_run(groups, options, std::move(prepared)));
    }
    return train(groups, options, data, start, record.get(), progress, stop_asked, outcome);
  };
  const auto fail = [&](const std::string& why) {
    outcome.reason = EndReason::kFailed;
    outcome.error = why + (record ? last_checkpoint(options.run_dir) : "");
    activity.over();
  };
  bool has_start = false;
  std::int64_t samples_before = 0;
  try {
    COPUS_TRY_VOID(find_start());
    has_start = true;
    samples_before = outcome.samples;
    if (const Result<void> trained = begin_and_train(); !trained) fail(trained.error().message);
  } catch (const std::exception& error) {
    if (!has_start && resumes) take_saved(options.run_dir, outcome);
    if (!has_start) samples_before = outcome.samples;
    fail(first_line(error));
  }
  if (outcome.seconds.v == 0) outcome.seconds = seconds_since(begin);
  outcome.tokens_per_s =
      static_cast<double>((outcome.samples - samples_before) * options.trainer.seq_len) /
      std::max(1e-9, outcome.seconds.v);
  if (record) {
    const Result<void> recorded = record->events.write(end_event(outcome));
    if (!recorded && outcome.error.empty()) fail(recorded.error().message);
  }
  // A supervisor reads the file until the process ends, and removes it itself.
  if (outcome.reason != EndReason::kFailed && options.held_directory < 0) activity.remove_file();
  return outcome;
}

}  // namespace copus
