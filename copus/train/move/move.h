// Moves a live run to another plan and batch. Its weights and moments and the order of its samples
// do not change.
#pragma once

#include <functional>
#include <string>

#include "copus/goodput/configuration.h"
#include "copus/train/engine/trainer.h"
#include "copus/train/move/reshard.h"

namespace copus {

// The outcome of a move to another configuration: its time, and the bytes that it moved.
struct MoveResult {
  bool done = false;
  std::string error;  // if not done: the rank and the reason. The old layout is as before.
  Seconds pause;
  Seconds groups, allocate, transfer, commit;  // the pause by phase
  std::int64_t bytes_moved = 0;                // between different ranks, in all
  std::int64_t bytes_read = 0;                 // those that this rank read from others' memory
};

enum class MovePhase { kGroups, kAllocate, kTransfer, kCommit };

struct MoveOptions {
  ReshardOptions reshard;
  // For tests: called on this rank in each phase. To simulate a failure there, it throws.
  std::function<void(MovePhase)> hook = nullptr;
};

// Moves the run to configuration `to`. Every rank calls this between the same two steps. If the
// move fails, the result says why, and the run continues unchanged. After an exception the run
// cannot continue. REQUIRES: the plan is valid.
MoveResult move_run(Trainer& trainer, GroupCache& groups, const Configuration& to,
                    const MoveOptions& how = {});

}  // namespace copus
