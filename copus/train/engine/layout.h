// Layout: everything of a rank that the plan shapes: its groups, its part of the model, its order
// of work. A run that changes its plan replaces it.
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

// Of the values that the model computes with.
inline at::ScalarType compute_dtype(const LayoutOptions& options) {
  return options.compute == Compute::kBf16 ? at::kBFloat16 : at::kFloat;
}

// Host memory for weights, optimizer state and gradients, on the rank that has most of them. A move
// takes all but the gradients before it frees what it leaves.
Bytes largest_host_memory(const LayoutOptions& options);

class Layout {
 public:
  // Every rank calls this with the same options. kInitial: the weights that a run begins with.
  // kUnset: weights and optimizer state are allocated on the host, to be filled in; then settle()
  // makes it one to train with.
  static Result<std::unique_ptr<Layout>> create(GroupCache& groups, const LayoutOptions& options,
                                                ParameterStart start);
  void settle(const LayoutOptions& options);

  // Another micro-batch, batch, recompute or sequence parallelism: no state moves, no message is
  // sent. On an error nothing has changed.
  // REQUIRES: same_placement(), and the plan is valid for the batch.
  Result<void> reshape(const LayoutOptions& options);

  Mesh mesh;
  Schedule schedule;
  std::vector<std::unique_ptr<ChunkParameters>>
      parameters;  // of this rank's chunks, in model order
  std::unique_ptr<Pipeline> pipeline;
  // Of all this rank's chunks; stays closed where sequence parallelism cuts samples.
  ScaleTap tap;

 private:
  Layout() = default;
  void build_chunks(const LayoutOptions& options);

  std::unique_ptr<Partition> partition_;
  std::vector<std::unique_ptr<ModelChunk>> chunks_;
};

}  // namespace copus
