// The options of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/events/event.h"
#include "copus/goodput/controller.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/health/bad_step.h"
#include "copus/train/options/trainer_options.h"

namespace copus {

// How a run adapts: what it may change, which configurations it may choose, and on which cluster.
struct AdaptOptions {
  ControllerOptions controller;  // controller.policy.adapt may have any value, kOff too
  std::int64_t lowest_batch = 0, highest_batch = 0;
  std::vector<PartialPlan> spaces;     // each pins some fields; all of them are searched
  std::optional<ClusterSpec> cluster;  // empty: measured here, or taken from the catalog
  bool choose_plan = false;            // begin with the layout that is predicted to be the fastest

  bool on() const { return controller.policy.adapt != Adapt::kOff; }
};

struct CheckpointOptions {
  bool save = true;        // at the end of the run, and when a signal ends it
  std::int64_t every = 0;  // also after every so many steps; 0: only those
  Retention retention;
  Seconds wait{1200};  // how long rank 0 waits for the other ranks' shards

  bool resume = false;
  // Which options the user has given now; the others come from the run that is resumed.
  bool plan_given = false, batch_given = false, lr_given = false, other_data = false;
  std::string why;      // of the restart, for the record
  std::string version;  // of the program, for the record
};

struct RunOptions {
  TrainerOptions trainer;
  std::vector<std::string> data{"builtin"};
  double held_out = 0.05;

  // The first of these limits that is reached ends the run. At least one is set.
  std::optional<std::int64_t> steps;
  std::optional<std::int64_t> samples;
  std::optional<double> until_loss;  // held-out loss if eval_every > 0, else that of a step
  std::optional<Seconds> for_time;

  std::int64_t eval_every = 0;  // steps; 0: never
  std::int64_t eval_samples = 64;

  AdaptOptions adapt;
  BadStepOptions bad_steps;
  CheckpointOptions checkpoint;

  std::string run_dir;
  // The lock on run_dir that the process that started this one holds: `held` of
  // RunDirectory::open().
  int held_directory = -1;
  std::string config;                 // text of config.toml
  std::vector<OptionChange> changed;  // of a resumed run, compared with its old config.toml
  std::optional<FlopsPerSec> peak;    // of all ranks together
};

}  // namespace copus
