// Whether a run can go on from a checkpoint with the model that it was given.
#pragma once

#include "copus/spec/model_spec.h"
#include "copus/train/checkpoint/reader.h"

namespace copus {

// Whether the checkpoint is of a model with the same tensors, which mean the same.
Result<void> check_same_model(const ModelSpec& wanted, const CheckpointReader& reader);

}  // namespace copus
