// Restores a trainer from a checkpoint, which any layout may have written.
#pragma once

#include <memory>

#include "copus/train/checkpoint/reader.h"
#include "copus/train/engine/trainer.h"

namespace copus {

// Returns a trainer with the checkpoint's weights, moments and number of updates. Each rank reads
// only the parts that it holds. The error may occur on one rank only, so the ranks must agree on
// what follows.
Result<std::unique_ptr<Trainer>> restore_trainer(GroupCache& groups, const TrainerOptions& options,
                                                 const CheckpointReader& reader);

}  // namespace copus
