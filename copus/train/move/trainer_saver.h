// Saves a rank's share of a checkpoint: copies it between two steps, and writes the copy to disk
// while the run continues.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "copus/train/checkpoint/saver.h"
#include "copus/train/engine/trainer.h"

namespace copus {

class TrainerSaver {
 public:
  explicit TrainerSaver(SaverOptions options) : saver_(std::move(options)) {}

  // Allocates the memory that a save needs, so that the first save does not wait for it.
  void prepare(const Trainer& trainer);
  // Starts a save. Every rank calls this between the same two steps. On CPUs, the copy is made
  // while the next step computes; only that step's update waits for it. `manifest`: everything but
  // the list of files. REQUIRES: no save is under way.
  void save(Trainer& trainer, Manifest manifest);
  // Returns the outcome of a save that has ended, once.
  std::optional<SaveOutcome> poll() { return saver_.poll(); }
  // Waits until the save under way has ended. Returns nothing if there is none.
  std::optional<SaveOutcome> wait() { return saver_.wait(); }
  // Returns how long the run has waited for the last save: in save(), and before the next update.
  Seconds held_up() const { return held_up_ ? *held_up_ : Seconds(); }

 private:
  // Computes which elements this rank writes under the trainer's plan, if `plan_` is another plan.
  void plan_for(const Trainer& trainer);

  std::optional<ParallelPlan> plan_;
  std::vector<ShardRun> runs_;
  std::vector<ShardPart> parts_;
  std::int64_t elements_ = 0;  // of each of kStateArrays
  // Kept between saves, because pages that are new to a process cost more time than the copy.
  Tensor buffer_;
  std::shared_ptr<Seconds> held_up_;
  Saver saver_;  // last, because it reads the buffer until it is destroyed
};

// Returns the manifest of a trainer at a step. `run`: the run's own state, which rank 0 stores in
// the manifest.
Manifest manifest_of(const Trainer& trainer, std::int64_t step, std::int64_t samples, Json run);

}  // namespace copus
