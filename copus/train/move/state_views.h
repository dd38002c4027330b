// A rank's weights and optimizer state as views of its buckets, by the model's tensors.
#pragma once

#include <optional>
#include <vector>

#include "copus/train/engine/buckets.h"
#include "copus/train/state/stripe.h"

namespace copus {

// Where a rank keeps each tensor of the model; nothing for those that it has no part of.
class TensorPlaces {
 public:
  struct Place {
    const Bucket* bucket = nullptr;
    const PlacedTensor* tensor = nullptr;
  };
  // `tensors`: model_tensors(). The parameters must outlive this.
  TensorPlaces(const std::vector<std::unique_ptr<ChunkParameters>>& parameters,
               const std::vector<TensorSpec>& tensors);

  const Place& operator[](std::size_t tensor) const { return places_[tensor]; }

 private:
  std::vector<Place> places_;
};

// One flat array of state: a bucket's values, or the master or a moment of its owned part.
struct FlatArray {
  Tensor flat;
  std::int64_t begin = 0;  // the bucket's element that comes first in it
};

// Where an array keeps a stripe's elements, in their order: blocks of rows.
std::vector<Tensor> block_views(const FlatArray& array, const PlacedTensor& tensor,
                                const Stripe& stripe);

enum class Direction { kPack, kUnpack };
// Between blocks and a run of the same elements.
void copy_blocks(const std::vector<Tensor>& blocks, const Tensor& run, Direction direction);

// The blocks as a run, where they are one.
std::optional<Tensor> as_run(const std::vector<Tensor>& blocks);

}  // namespace copus
