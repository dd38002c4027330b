// A run's state in files: what a run that is saved, ended and started again at another layout
// writes and reads. FP32 on CPUs alone. Throws std::runtime_error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "copus/train/engine/buckets.h"
#include "copus/train/state/transfer.h"

namespace copus {

using StateParameters = std::vector<std::unique_ptr<ChunkParameters>>;

// Of ranks that hold the same, the first replica's writes it. On disk when this returns.
void save_state(const std::string& folder, const Mesh& mesh, const StateParameters& parameters);

// Fills what this rank needs at `change.to` from the files of a run at `change.from`.
void load_state(const std::string& folder, const LayoutChange& change, int rank,
                const StateParameters& parameters);

}  // namespace copus
