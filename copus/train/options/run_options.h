// What a run is asked to do.
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

// How a run adapts: what is decided, over which configurations, on which cluster.
struct AdaptOptions {
  ControllerOptions controller;  // policy.adapt: any of them
  std::int64_t lowest_batch = 0, highest_batch = 0;
  std::vector<PartialPlan> spaces;     // what is pinned; each is searched
  std::optional<ClusterSpec> cluster;  // nothing: measured here, or the catalog's
  bool choose_plan = false;            // begin with the layout that is predicted to be fastest

  bool on() const { return controller.policy.adapt != Adapt::kOff; }
};

struct CheckpointOptions {
  bool save = true;        // at the end of the run, and where a signal ends it
  std::int64_t every = 0;  // and every so many steps; 0: not
  Retention retention;
  Seconds wait{1200};  // rank 0's, for the other ranks' shards

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
  std::optional<Seconds> for_time;

  std::int64_t eval_every = 0;  // steps; 0: never
  std::int64_t eval_samples = 64;

  AdaptOptions adapt;
  BadStepOptions bad_steps;
  CheckpointOptions checkpoint;

  std::string run_dir;
  int held_directory = -1;  // RunDirectory::open()'s, of the process that started this one
  std::string config;       // text of config.toml
  std::vector<OptionChange> changed;  // of a resumed run, against the config.toml that it had
  std::optional<FlopsPerSec> peak;    // of all ranks together
};

}  // namespace copus
