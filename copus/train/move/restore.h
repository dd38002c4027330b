// A run goes on from a checkpoint, at its own layout, whatever layout wrote it.
#pragma once

#include <memory>

#include "copus/train/checkpoint/reader.h"
#include "copus/train/engine/trainer.h"

namespace copus {

// A trainer with the checkpoint's weights, moments and count of updates. Each rank reads only what
// it holds. An error may be one rank's alone: all must agree on what follows.
Result<std::unique_ptr<Trainer>> restore_trainer(GroupCache& groups, const TrainerOptions& options,
                                                 const CheckpointReader& reader);

}  // namespace copus
