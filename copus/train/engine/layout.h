// Layout: all parts of a rank that depend on the plan: its groups, its part of the model, and its
// order of work. A run that changes its plan replaces its Layout.
#pragma once

#include <memory>
#include <vector>

#include "copus/base/units.h"
#include "copus/spec/schedule.h"
#include "copus/train/engine/buckets.h"
#include "copus/train/engine/pipeline.h"
#include "copus/train/model/model.h"
#include "copus/train/model/partition.h"
#include "copus/train/options/layout_options.h"

namespace copus {

// Returns the type of the values that the model computes with.
inline at::ScalarType compute_dtype(const LayoutOptions& options) {
  return options.compute == Compute::kBf16 ? at::kBFloat16 : at::kFloat;
}

// Returns the host memory for weights, optimizer state and (on CPUs) gradients, on the rank that
// has most of them. A move allocates all of it except the gradients before it frees the old layout.
Bytes largest_host_memory(const LayoutOptions& options);

class Layout {
 public:
  // All ranks call this with the same options. kInitial: has the weights that a run begins with.
  // kUnset: allocates weights and optimizer state on the host. The caller fills them in, then calls
  // settle(), and can train afterwards.
  static Result<std::unique_ptr<Layout>> create(GroupCache& groups, const LayoutOptions& options,
                                                ParameterStart start);
  void settle(const LayoutOptions& options);

  // Changes micro-batch, batch, recompute or sequence parallelism. Moves no state and sends no
  // message. On an error nothing has changed.
  // REQUIRES: same_placement(), and the plan is valid for the batch.
  Result<void> reshape(const LayoutOptions& options);

  Mesh mesh;
  Schedule schedule;
  std::vector<std::unique_ptr<ChunkParameters>>
      parameters;  // of this rank's chunks, in model order
  std::unique_ptr<Pipeline> pipeline;
  // The tap of all chunks of this rank. It stays closed if sequence parallelism cuts samples.
  ScaleTap tap;

 private:
  Layout() = default;
  void build_chunks(const LayoutOptions& options);

  std::unique_ptr<Partition> partition_;
  std::vector<std::unique_ptr<ModelChunk>> chunks_;
};

}  // namespace copus
