// Checkpoints: a live run's, on one rank: when one is due, the one that is being written, what has
// become of it.
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
  // `step`: where the run begins; `on_disk`: a checkpoint of it is there.
  Checkpoints(const RunOptions& options, const Trainer& trainer, const RunLog& log,
              std::int64_t step, bool on_disk);

  // Takes the memory that the first save needs.
  void prepare(const Trainer& trainer);

  // Whether --checkpoint-every, or ask(), wants one after this step.
  bool due(std::int64_t step) const;
  // One at the next opportunity, whatever --checkpoint-every says.
  void ask() { asked_ = true; }
  // Whether the run, if it ended here, would lose something.
  bool missing(std::int64_t step) const { return saver_ && step != begun_step_; }

  // On all ranks alike, between two steps. Waits for the one under way. `manifest`: all but its
  // files; rank 0's counts.
  Result<void> save(Trainer& trainer, Manifest manifest);
  // Writes down what became of the one under way, where it is over.
  Result<void> poll();
  // The same, until it is over.
  Result<void> wait();
  // The run is over: until what was saved last is on disk, everywhere. Why it is not, agreed by all
  // ranks; "": it is.
  Result<std::string> finish(const Trainer& trainer);

  // Whether this step's is on disk, as far as this rank knows.
  bool on_disk(std::int64_t step) const { return saved_step_ == step; }

 private:
  Result<void> record(const SaveOutcome& saved);

  const RunOptions& options_;
  const RunLog& log_;
  int rank_;
  std::optional<TrainerSaver> saver_;  // none: --checkpoint-every off
  bool asked_ = false;
  std::int64_t begun_step_;                 // of the last save, or where the run went on from
  std::optional<std::int64_t> saved_step_;  // the last that is on disk
  Seconds waited_;                          // for the save before the one under way
};

}  // namespace copus
