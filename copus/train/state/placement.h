// Where a rank keeps the parameters of a chunk: which bucket, which offset, which part it owns.
//
// Pure arithmetic from model, plan and coordinates: every rank can compute every other's. The
// tensors lie alike on all tensor-parallel and data-parallel ranks of a stage; only which rows or
// columns they are, and which part of the bucket is owned, differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "copus/spec/rank_grid.h"
#include "copus/train/state/parameters.h"

namespace copus {

// One tensor's local part inside a bucket.
struct PlacedTensor {
  TensorSpec spec;
  Shard shard;
  std::int64_t offset = 0;  // first element in the bucket
  std::int64_t size = 0;    // elements, padding included
};

struct PlacedParameter {
  std::size_t index = 0;  // in chunk_parameters()
  std::int64_t offset = 0;
};

// What a rank keeps for each element: the values of its whole local part, and the optimizer's state
// of the part that it owns.
enum class StateKind { kOptimizer, kValues };

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

// A bucket without its memory.
struct BucketPlacement {
  bool decay = false;
  bool tied = false;        // the shared embedding: summed with the other end of the pipeline first
  std::int64_t size = 0;    // elements without the padding
  std::int64_t padded = 0;  // to a multiple of dp
  std::vector<PlacedTensor> tensors;
  std::vector<PlacedParameter> parameters;

  // This rank's part: [begin, begin + length). Everything, unless optimizer state is sharded.
  std::int64_t owned_begin = 0;
  std::int64_t owned_length = 0;
};

// What data-parallel rank `dp` owns of a bucket of `padded` elements.
Range owned_range(const ParallelPlan& plan, std::int64_t padded, std::int64_t dp);

// The buckets of a chunk on the rank at `at`. A bucket is closed once it has `bucket_elements`.
std::vector<BucketPlacement> place_chunk(const ModelSpec& model, const ChunkSpec& chunk,
                                         const ParallelPlan& plan, const Coordinates& at,
                                         std::int64_t bucket_elements);

}  // namespace copus
