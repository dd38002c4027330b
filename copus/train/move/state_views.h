// Views of the buckets that hold a rank's weights and optimizer state, by tensor of the model.
#pragma once

#include <optional>
#include <vector>

#include "copus/train/engine/buckets.h"
#include "copus/train/state/stripe.h"

namespace copus {

// Where a rank keeps its part of each tensor of the model.
class TensorPlaces {
 public:
  struct Place {
    const Bucket* bucket = nullptr;
    const PlacedTensor* tensor = nullptr;
  };
  // `tensors`: model_tensors(). The parameters must outlive this.
  TensorPlaces(const std::vector<std::unique_ptr<ChunkParameters>>& parameters,
               const std::vector<TensorSpec>& tensors);

  // Returns null pointers for a tensor of which this rank has no part.
  const Place& operator[](std::size_t tensor) const { return places_[tensor]; }

 private:
  std::vector<Place> places_;
};

// One flat array of state: the values of a bucket, or the master or a moment of its owned part.
struct FlatArray {
  Tensor flat;
  std::int64_t begin = 0;  // index in the bucket of the array's first element
};

// Returns views of a stripe's elements in the array, in their order: blocks of rows.
std::vector<Tensor> block_views(const FlatArray& array, const PlacedTensor& tensor,
                                const Stripe& stripe);

enum class Direction { kPack, kUnpack };
// Copies from the blocks to a run of the same elements (kPack), or back (kUnpack).
void copy_blocks(const std::vector<Tensor>& blocks, const Tensor& run, Direction direction);

// Returns the blocks as a flat run of consecutive elements, if they are one.
std::optional<Tensor> as_run(const std::vector<Tensor>& blocks);

}  // namespace copus
