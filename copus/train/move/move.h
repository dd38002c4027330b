// A live run goes on with another plan and batch: the same weights, moments and samples.
#pragma once

#include <functional>
#include <string>

#include "copus/goodput/configuration.h"
#include "copus/train/engine/trainer.h"
#include "copus/train/move/reshard.h"

namespace copus {

// What a move to another configuration took, and moved.
struct MoveResult {
  bool done = false;
  std::string error;  // not done: which rank, and why. The old layout is as it was.
  Seconds pause;
  Seconds groups, allocate, transfer, commit;  // the pause by phase
  std::int64_t bytes_moved = 0;                // between ranks, all together
  std::int64_t bytes_read = 0;                 // of these, by this rank from others' memory
};

enum class MovePhase { kGroups, kAllocate, kTransfer, kCommit };

struct MoveOptions {
  ReshardOptions reshard;
  // For tests: called on this rank in each phase; what it throws is what happens there.
  std::function<void(MovePhase)> hook = nullptr;
};

// Between two steps, on every rank alike. Where it is not possible the result says so and nothing
// has changed; an exception is one after which the run cannot go on. REQUIRES: the plan is valid.
MoveResult move_run(Trainer& trainer, GroupCache& groups, const Configuration& to,
                    const MoveOptions& how = {});

}  // namespace copus
