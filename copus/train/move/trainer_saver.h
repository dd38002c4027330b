// A rank's share of a checkpoint: copied between two steps, written while the run goes on.
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

  // Takes the memory that a save needs, so that the first one does not wait for it.
  void prepare(const Trainer& trainer);
  // Between two steps, on all ranks alike. On the host what this rank alone writes is copied while
  // the next step computes: only its update waits for the copy. `manifest`: all but its files.
  // REQUIRES: none is under way.
  void save(Trainer& trainer, Manifest manifest);
  // The save under way where it is over, once.
  std::optional<SaveOutcome> poll() { return saver_.poll(); }
  // Until it is over; nothing where there is none.
  std::optional<SaveOutcome> wait() { return saver_.wait(); }
  // What the run has waited for the last save: in save(), and before the update after it.
  Seconds held_up() const { return held_up_ ? *held_up_ : Seconds(); }

 private:
  // What is written where, of the layout that `plan_` is.
  void plan_for(const Trainer& trainer);

  std::optional<ParallelPlan> plan_;
  std::vector<ShardRun> runs_;
  std::vector<ShardPart> parts_;
  std::int64_t elements_ = 0;  // of one kind
  // Kept from one save to the next: pages that are new to a process cost more than the copy.
  Tensor buffer_;
  std::shared_ptr<Seconds> held_up_;
  Saver saver_;  // last: it reads the buffer until it is gone
};

// The manifest of a trainer at a step; `run` is what rank 0 keeps beside.
Manifest manifest_of(const Trainer& trainer, std::int64_t step, std::int64_t samples, Json run);

}  // namespace copus
