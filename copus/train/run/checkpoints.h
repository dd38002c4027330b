// The checkpoints of a live run, on one rank: decides when one is due, starts the save, and records
// its outcome.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "copus/train/move/trainer_saver.h"
#include "copus/train/options/run_options.h"
#include "copus/train/run/run_log.h"

namespace copus {

class Checkpoints {
 public:
  // `step`: the step at which the run begins or continues. `on_disk`: there is a checkpoint of it.
  Checkpoints(const RunOptions& options, const Trainer& trainer, const RunLog& log,
              std::int64_t step, bool on_disk);

  // Allocates the memory that the first save needs.
  void prepare(const Trainer& trainer);

  // Whether --checkpoint-every or ask() wants a checkpoint after this step.
  bool due(std::int64_t step) const;
  // Asks for a checkpoint at the next opportunity, regardless of --checkpoint-every.
  void ask() { asked_ = true; }
  // Whether the run would lose training if it ended here: checkpoints are on, and no save of this
  // step has begun.
  bool missing(std::int64_t step) const { return saver_ && step != begun_step_; }

  // Waits for the save under way, then starts another. Every rank calls this between the same two
  // steps. `manifest`: everything but the list of files; only that of rank 0 is written.
  Result<void> save(Trainer& trainer, Manifest manifest);
  // Records the outcome of the save under way, if it has ended.
  Result<void> poll();
  // Waits until the save under way has ended, and records its outcome.
  Result<void> wait();
  // Waits until all ranks have written their shards of the last checkpoint. Every rank calls this
  // at the end of the run. Returns "", or on all ranks the same reason why it is not on disk.
  Result<std::string> finish(const Trainer& trainer);

  // Whether the checkpoint of this step is on disk, as far as this rank knows.
  bool on_disk(std::int64_t step) const { return saved_step_ == step; }

 private:
  Result<void> record(const SaveOutcome& saved);

  const RunOptions& options_;
  const RunLog& log_;
  int rank_;
  std::optional<TrainerSaver> saver_;  // empty: --checkpoint-every off
  bool asked_ = false;
  std::int64_t begun_step_;                 // step of the last save, or where the run began
  std::optional<std::int64_t> saved_step_;  // step of the last checkpoint that is on disk
  Seconds waited_;  // how long the save under way has waited for the one before
};

}  // namespace copus
