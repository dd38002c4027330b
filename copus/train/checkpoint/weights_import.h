// A checkpoint of weights alone, written by one process: what an import makes.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "copus/train/checkpoint/manifest.h"
#include "copus/train/state/parameters.h"

namespace copus {

// Fills `out` with a whole tensor, row by row.
using TensorSource = std::function<Result<void>(const TensorSpec& tensor, std::span<float> out)>;

// Publishes RUN/checkpoints/step-N of `manifest`, whose files and `optimizer` are set here: one
// shard. Holds one tensor at a time.
Result<void> write_weights_checkpoint(const std::string& run_dir, Manifest manifest,
                                      const TensorSource& source);

}  // namespace copus
