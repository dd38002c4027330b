// The start of a run: a new run, or one that continues from a checkpoint.
//
// New run: prepare_run() decides what must be decided before anything is written, and begin_run()
// then makes the trainer. From a checkpoint: resume_run() picks the checkpoint and lets all ranks
// agree on it. For each checkpoint that it tries, restore_verified() loads it and verifies its
// files at the same time: it calls restore_trainer() (move/restore.h), which builds a rank's
// trainer from the parts of the files that its layout needs. At last rank 0 restores what the
// controller had learned (run.cc).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "copus/train/checkpoint/reader.h"
#include "copus/train/run/adaptation.h"
#include "copus/train/run/run.h"

namespace copus {

// The decisions that are made before anything is written.
struct PreparedRun {
  TrainerOptions trainer;              // with the chosen plan
  std::optional<ClusterSpec> cluster;  // for which layouts are chosen, now or later
  std::optional<Adaptation> adaptation;
};

// The state before the first step of this process.
struct RunStart {
  std::unique_ptr<Trainer> trainer;
  std::optional<ClusterSpec> cluster;
  std::optional<Adaptation> adaptation;

  // What the run has reached: nothing, or what the checkpoint says.
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::optional<double> loss;  // of the last step
  std::uint64_t data_hash = 0;
  Json controller;  // null: none

  bool resumed = false;
  std::string from;     // the checkpoint's folder; empty: there was no checkpoint yet
  std::string skipped;  // why newer checkpoints were not used; empty: none was skipped
};

// Every rank calls these.
Result<PreparedRun> prepare_run(GroupCache& groups, const RunOptions& options);
Result<RunStart> begin_run(GroupCache& groups, const RunOptions& options, PreparedRun prepared);

// Resumes a run from its newest intact checkpoint. Every rank calls this. Each rank loads its part
// while the ranks verify the checksums, each file on one rank; all agree before any continues. A
// damaged checkpoint is reported with `say`, and the one before it is tried. Returns an error if
// all checkpoints are damaged, or if the options do not fit the checkpoint. A run that has no
// checkpoint yet begins at step 0.
Result<RunStart> resume_run(GroupCache& groups, const RunOptions& options, const Dataset& data,
                            const std::function<void(const std::string&)>& say);

// Calls restore_trainer() while the ranks verify the files' checksums, each file on one rank. The
// error may occur on one rank only.
Result<std::unique_ptr<Trainer>> restore_verified(GroupCache& groups, const TrainerOptions& options,
                                                  const CheckpointReader& reader);

}  // namespace copus
