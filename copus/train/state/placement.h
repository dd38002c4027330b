// Where a rank keeps the parameters of a chunk: in which bucket, at which offset, and which part of
// the bucket it owns.
//
// This is pure arithmetic from model, plan and coordinates, so a rank can compute the placement of
// any other rank. A tensor has the same bucket and offset on all tensor-parallel and data-parallel
// ranks of a stage. These ranks differ only in the rows or columns that they hold, and in the part
// of the bucket that they own.
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

// A rank keeps two kinds of state: the values of its whole local part, and the optimizer state of
// the part that it owns.
enum class StateKind { kOptimizer, kValues };

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

// A bucket without its memory.
struct BucketPlacement {
  bool decay = false;
  bool tied = false;        // shared embedding: both ends of the pipeline first sum its gradients
  std::int64_t size = 0;    // elements without the padding
  std::int64_t padded = 0;  // `size` rounded up to a multiple of dp
  std::vector<PlacedTensor> tensors;
  std::vector<PlacedParameter> parameters;

  // This rank's part is [begin, begin + length): the whole bucket, unless the optimizer state is
  // sharded.
  std::int64_t owned_begin = 0;
  std::int64_t owned_length = 0;
};

// The part of a bucket of `padded` elements that data-parallel rank `dp` owns.
Range owned_range(const ParallelPlan& plan, std::int64_t padded, std::int64_t dp);

// The buckets of a chunk on the rank at `at`. A bucket takes no further parameters once it has
// `bucket_elements`.
std::vector<BucketPlacement> place_chunk(const ModelSpec& model, const ChunkSpec& chunk,
                                         const ParallelPlan& plan, const Coordinates& at,
                                         std::int64_t bucket_elements);

}  // namespace copus
