#include "copus/train/run/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/base/to_stderr.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/health/watchdog.h"
#include "copus/train/options/run_data.h"
#include "copus/train/run/live_job.h"
#include "copus/train/run/start.h"

namespace copus {
namespace {

// What must be the same on every rank, a line each. Paths may differ between machines, what they
// lead to may not.
std::string common_options(const RunOptions& options, const Dataset& data) {
  std::string text;
  for (const std::string_view line : split(options.config, '\n')) {
    const std::string_view key = line.substr(0, line.find(' '));
    if (line.empty() || key == "model" || key == "data" || key == "run-dir") continue;
    text += fmt::format("{}\n", line);
  }
  const ModelSpec& m = options.trainer.model;
  text += fmt::format("shape = {} layers of {}, MLP {}, {}/{} heads of {}, vocabulary {}\n",
                      m.layers, m.hidden, m.ffn, m.heads, m.kv_heads, m.head_dim, m.vocab);
  text += fmt::format(
      "kind = gated {}, tied {}, norm {} {}, positions {} {} {} {} {} {} {}, activation {}, biases "
      "{} {} "
      "{}, qk_norm {}, std {}\n",
      m.gated_mlp, m.tied_embeddings, static_cast<int>(m.norm), m.norm_eps,
      static_cast<int>(m.positions), m.rope_theta, static_cast<int>(m.rope_scaling.kind),
      m.rope_scaling.factor, m.rope_scaling.low_freq_factor, m.rope_scaling.high_freq_factor,
      m.rope_scaling.original_max_positions, static_cast<int>(m.activation), m.qkv_bias,
      m.attention_out_bias, m.mlp_bias, m.qk_norm, m.init_std);
  return text + fmt::format("tokens of data = {}\nsamples = {:016x}\n", data.tokens(),
                            data_fingerprint(data));
}

// What rank 0 says once under this name, to all others.
void tell_others(const Rendezvous& where, const std::string& key, const std::string& text) {
  if (where.world_size == 1) return;
  where.store->set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::string hear_from_rank_0(const Rendezvous& where, const std::string& key) {
  try {
    const std::vector<std::uint8_t> bytes = where.store->get(key);
    return {bytes.begin(), bytes.end()};
  } catch (const std::exception& error) {
    throw CommError(
        fmt::format("no answer of rank 0 at the ranks' meeting point ({})", first_line(error)));
  }
}

// Where a launcher starts the ranks each has its own command line: with another seed on one of them
// the replicas would drift apart without a word.
Result<void> check_same_options(const Rendezvous& where, const RunOptions& options,
                                const Dataset& data) {
  const std::string key = "copus/options";
  const std::string mine = common_options(options, data);
  if (where.rank == 0) {
    tell_others(where, key, mine);
    return {};
  }
  const std::string first = hear_from_rank_0(where, key);
  if (mine == first) return {};
  const std::vector<std::string_view> ours = split(mine, '\n'), theirs = split(first, '\n');
  std::size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  return make_error("rank {}: got {}; want {}, as rank 0 has it", where.rank,
                    i < ours.size() ? ours[i] : "", i < theirs.size() ? theirs[i] : "");
}

}  // namespace

namespace {

Result<Recorder> open_recorder(const RunOptions& options) {
  COPUS_TRY(RunDirectory directory,
            RunDirectory::open(options.run_dir, options.checkpoint.resume, options.held_directory));
  if (options.checkpoint.save) COPUS_TRY_VOID(prepare_checkpoints(options.run_dir));
  // Nobody else writes here now: what is half done will stay so.
  // What cannot be removed is in nobody's way.
  if (const Result<void> cleaned = clean_leftovers(options.run_dir); !cleaned) {
    to_stderr(fmt::format("copus: {}\n", cleaned.error().message));
  }
  return Recorder(std::move(directory));
}

// The run directory is this run's when it returns: rank 0 has its lock, and only then do others
// write there.
Result<std::optional<Recorder>> enter_directory(const Rendezvous& where,
                                                const RunOptions& options) {
  const std::string key = "copus/directory", entered = "entered";
  std::optional<Recorder> recorder;
  if (where.rank != 0) {
    const std::string heard = hear_from_rank_0(where, key);
    if (heard != entered) return make_error("rank 0: {}", heard);
    return recorder;
  }
  Result<Recorder> opened = open_recorder(options);
  tell_others(where, key, opened ? entered : opened.error().message);
  if (!opened) return opened.error();
  recorder.emplace(std::move(opened).value());
  return recorder;
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
    std::_Exit(1);  // the thread that stands still cannot be asked to end
  };
  return options;
}

Result<void> record_end(Recorder& recorder, const RunOutcome& outcome) {
  return recorder.write("end",
                        {{"reason", outcome.reason},
                         {"error", outcome.error.empty() ? Json(nullptr) : Json(outcome.error)},
                         {"step", outcome.steps},
                         {"samples", outcome.samples},
                         {"loss", outcome.loss},
                         {"held_out_loss", number_or_null(outcome.held_out_loss)},
                         {"seconds", outcome.seconds},
                         {"tokens_per_s", outcome.tokens_per_s},
                         {"moves", outcome.moves},
                         {"pause_s", outcome.pause_s}});
}

// Where a run that failed can go on.
std::string last_checkpoint(const std::string& run_dir) {
  const auto saved = list_checkpoints(run_dir);
  if (!saved || saved->empty()) return "";
  return fmt::format("; the last checkpoint is {}", saved->back().folder);
}

}  // namespace

Result<RunOutcome> run_training(GroupCache& groups, const RunOptions& options, Progress* progress,
                                const std::atomic<bool>& stop_asked) {
  COPUS_TRY(const Dataset data, open_data(options));
  COPUS_TRY_VOID(check_same_options(groups.rendezvous(), options, data));
  const int rank = groups.rendezvous().rank;
  const auto say = [&](const std::string& text) {
    if (progress != nullptr) progress->say(text);
  };
  std::optional<Recorder> recorder;
  TrainerOptions trainer_options = options.trainer;
  RunStart start;
  Activity& activity = *groups.rendezvous().activity;
  std::optional<Watchdog> watchdog;
  const auto begin_watching = [&]() -> Result<void> {
    COPUS_TRY_VOID(activity.publish(activity_folder(options.run_dir), rank));
    watchdog.emplace(activity, watching(groups.rendezvous()));
    return {};
  };
  if (options.checkpoint.resume) {
    COPUS_TRY(recorder, enter_directory(groups.rendezvous(), options));
    COPUS_TRY_VOID(begin_watching());
    COPUS_TRY(start, resume_run(groups, options, data, say));
    trainer_options = start.trainer->options();
  } else {
    COPUS_TRY(start, prepare_run(groups, options, trainer_options));
    COPUS_TRY(recorder, enter_directory(groups.rendezvous(), options));
    COPUS_TRY_VOID(begin_watching());
  }
  // Not before it is known that the run can begin, or go on, with these options.
  if (recorder) COPUS_TRY_VOID(recorder->directory().write_text("config.toml", options.config));
  const auto begin = std::chrono::steady_clock::now();
  RunOutcome outcome;
  const auto train = [&]() -> Result<void> {
    if (!start.trainer) COPUS_TRY_VOID(make_trainer(groups, options, trainer_options, start));
    LiveJob job(groups, options, data, start, recorder ? &*recorder : nullptr, progress,
                stop_asked);
    // However it ends, what was reached is the outcome's.
    const auto take_outcome = [&] {
      outcome = job.outcome();
      outcome.seconds = job.trained_s();
    };
    const Activity::Scope steps(activity, Doing::kBetweenSteps);
    try {
      if (Result<void> begun = job.begin(); !begun) {
        take_outcome();
        return begun;
      }
      if (rank != 0) {
        Result<void> followed = job.follow();
        if (followed) followed = job.finish_saving();
        take_outcome();
        return followed;
      }
      Controller controller = make_controller(options.adapt, trainer_options, start.adaptation);
      if (!start.controller.is_null()) {
        COPUS_TRY_VOID(controller.restore(start.controller, start.from + ": controller"));
      }
      Result<void> driven = drive(job, controller);
      if (driven) driven = job.finish_saving();
      take_outcome();
      outcome.summary = job.summary(controller);
      return driven;
    } catch (...) {
      take_outcome();
      throw;
    }
  };
  const auto fail = [&](const std::string& why) {
    outcome.reason = "failed";
    outcome.error = why + (rank == 0 ? last_checkpoint(options.run_dir) : "");
    activity.over();
  };
  try {
    if (const Result<void> trained = train(); !trained) fail(trained.error().message);
  } catch (const std::exception& error) {
    fail(first_line(error));
  }
  if (outcome.seconds == 0) {
    outcome.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  outcome.tokens_per_s =
      static_cast<double>((outcome.samples - start.samples) * options.trainer.seq_len) /
      std::max(1e-9, outcome.seconds);
  if (progress != nullptr) progress->finish();
  if (recorder) {
    const Result<void> recorded = record_end(*recorder, outcome);
    if (!recorded && outcome.error.empty()) fail(recorded.error().message);
  }
  // A supervisor still looks whether the process ends, and removes them itself.
  if (outcome.reason != "failed" && options.held_directory < 0) activity.remove_file();
  return outcome;
}

}  // namespace copus
