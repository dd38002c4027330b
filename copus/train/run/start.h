// How a run begins: anew, or from a checkpoint.
//
// Anew: prepare_run() decides what must be decided before anything is written, and begin_run()
// makes the trainer of it. From a checkpoint: resume_run() picks the checkpoint and lets all ranks
// agree on it; for each that it tries, restore_verified() loads it and verifies its files at the
// same time; and restore_trainer() (move/restore.h), which that calls, builds a rank's trainer from
// what its layout needs of the files. What the controller had learned is restored last, by rank 0
// alone (run.cc).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "copus/train/checkpoint/reader.h"
#include "copus/train/run/adaptation.h"
#include "copus/train/run/run.h"

namespace copus {

// What is decided before anything is written.
struct PreparedRun {
  TrainerOptions trainer;              // with the plan that was chosen
  std::optional<ClusterSpec> cluster;  // that layouts were chosen for, here or later
  std::optional<Adaptation> adaptation;
};

// Where the first step is made from.
struct RunStart {
  std::unique_ptr<Trainer> trainer;
  std::optional<ClusterSpec> cluster;
  std::optional<Adaptation> adaptation;

  // What was reached: nothing, or what the checkpoint has.
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::optional<double> loss;  // of the last step
  std::uint64_t data_hash = 0;
  Json controller;  // null: none

  bool resumed = false;
  std::string from;     // the checkpoint's folder; empty where there was none yet
  std::string skipped;  // why newer ones were not taken; empty: none were
};

// Every rank calls these.
Result<PreparedRun> prepare_run(GroupCache& groups, const RunOptions& options);
Result<RunStart> begin_run(GroupCache& groups, const RunOptions& options, PreparedRun prepared);

// Every rank calls this. Takes the newest checkpoint that is whole: every rank loads its part while
// the files' checksums are verified, each by one rank, and all agree before any goes on. One that
// is damaged is said loudly, and the one before it is taken. An error where all are damaged, and
// where the options do not go with the checkpoint. A run that has none yet begins anew.
Result<RunStart> resume_run(GroupCache& groups, const RunOptions& options, const Dataset& data,
                            const std::function<void(const std::string&)>& say);

// restore_trainer() while the checksums of the files are verified, each file by one of the ranks.
// An error may be one rank's alone.
Result<std::unique_ptr<Trainer>> restore_verified(GroupCache& groups, const TrainerOptions& options,
                                                  const CheckpointReader& reader);

}  // namespace copus
