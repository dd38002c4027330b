// How a run begins: anew, or from a checkpoint.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "copus/train/checkpoint/reader.h"
#include "copus/train/run/adaptation.h"
#include "copus/train/run/run.h"

namespace copus {

struct RunStart {
  std::unique_ptr<Trainer> trainer;
  std::optional<ClusterSpec> cluster;  // that layouts were chosen for, here or later
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

// restore_trainer() while the checksums of the files are verified, each file by one of the ranks.
// An error may be one rank's alone.
Result<std::unique_ptr<Trainer>> restore_verified(GroupCache& groups, const TrainerOptions& options,
                                                  const CheckpointReader& reader);

// What is decided before anything is written; then make_trainer().
Result<RunStart> prepare_run(GroupCache& groups, const RunOptions& options,
                             TrainerOptions& trainer);
Result<void> make_trainer(GroupCache& groups, const RunOptions& options,
                          const TrainerOptions& trainer, RunStart& start);

// Every rank calls this. Takes the newest checkpoint that is whole: every rank loads its part while
// the files' checksums are verified, each by one rank, and all agree before any goes on. One that
// is damaged is said loudly, and the one before it is taken. An error where all are damaged, and
// where the options do not go with the checkpoint. A run that has none yet begins anew.
Result<RunStart> resume_run(GroupCache& groups, const RunOptions& options, const Dataset& data,
                            const std::function<void(const std::string&)>& say);

}  // namespace copus
