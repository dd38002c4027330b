// A whole training run on one rank: steps until a reason to stop, events, what a person sees.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "copus/train/adaptation.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/health/bad_step.h"
#include "copus/train/record/progress.h"

namespace copus {

struct CheckpointOptions {
  bool save = true;        // at the end of the run, and where a signal ends it
  std::int64_t every = 0;  // and every so many steps; 0: not
  Retention retention;
  double wait_s = 1200;  // rank 0's, for the other ranks' shards

  bool resume = false;
  // What the user asked for now, and not the run that is resumed.
  bool plan_given = false, batch_given = false, lr_given = false, other_data = false;
  std::string why;      // of the restart, for the record
  std::string version;  // of the program, for the record
};

struct RunOptions {
  TrainerOptions trainer;
  std::vector<std::string> data{"builtin"};
  double held_out = 0.05;

  // The first of these that is met ends the run; at least one is set.
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> samples;
  std::optional<double> until_loss;  // the held-out loss where --eval-every asks for one
  std::optional<double> for_seconds;

  std::int64_t eval_every = 0;  // steps; 0: never
  std::int64_t eval_samples = 64;

  AdaptOptions adapt;
  BadStepOptions bad_steps;
  CheckpointOptions checkpoint;

  std::string run_dir;
  int held_directory = -1;          // RunDirectory::open()'s, of the process that started this one
  std::string config;               // text of config.toml
  std::optional<FlopsPerSec> peak;  // of all ranks together
};

struct RunOutcome {
  std::string reason;  // steps, samples, loss, time, signal, not_finite, spike, failed
  // Not empty: not_finite or spike (all ranks agree), or failed (this rank's own reason).
  std::string error;
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  double loss = 0;
  std::optional<double> held_out_loss;
  double seconds = 0;
  double tokens_per_s = 0;  // of what this process trained
  std::int64_t moves = 0;
  double pause_s = 0;   // of all moves
  bool saved = false;   // what was reached is a checkpoint, as far as this rank knows
  std::string summary;  // rank 0's: the phases of a run that moved
};

// Where each rank of a run says what it does, while the run lives and after it failed.
std::string activity_folder(const std::string& run_dir);

// The data of a run, looked at as far as the first step and the first evaluation will need it.
Result<Dataset> open_data(const RunOptions& options);

// Every rank calls this with the same options. `progress` and the run directory are rank 0's alone.
// `stop_asked` may be set by a signal handler on any rank: all ranks then end after the same step.
// An error is one of the input, before the run has started. What goes wrong later, libtorch's
// exceptions with it, is an outcome with its `end` event.
Result<RunOutcome> run_training(GroupCache& groups, const RunOptions& options, Progress* progress,
                                const std::atomic<bool>& stop_asked);

}  // namespace copus
