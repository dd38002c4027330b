// Writes a run's state to files, and reads it into a run that starts again at another layout. For
// FP32 on CPUs only. Errors throw std::runtime_error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "copus/train/engine/buckets.h"
#include "copus/train/state/transfer.h"

namespace copus {

using StateParameters = std::vector<std::unique_ptr<ChunkParameters>>;

// Writes this rank's state. If several ranks hold the same state, the rank of the first replica
// writes it. The files are on disk when the function returns.
void save_state(const std::string& folder, const Mesh& mesh, const StateParameters& parameters);

// Reads the state that this rank needs at `change.to` from the files of a run at `change.from`.
void load_state(const std::string& folder, const LayoutChange& change, int rank,
                const StateParameters& parameters);

}  // namespace copus
