#include "copus/train/move/state_views.h"

#include <unordered_map>

namespace copus {

TensorPlaces::TensorPlaces(const std::vector<std::unique_ptr<ChunkParameters>>& parameters,
                           const std::vector<TensorSpec>& tensors)
    : places_(tensors.size()) {
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < tensors.size(); ++i) index[tensors[i].name] = i;
  for (const auto& own : parameters) {
    for (const Bucket& bucket : own->buckets()) {
      for (const PlacedTensor& tensor : bucket.tensors) {
        places_[index.at(tensor.spec.name)] = {&bucket, &tensor};
      }
    }
  }
}

std::vector<Tensor> block_views(const FlatArray& array, const PlacedTensor& tensor,
                                const Stripe& stripe) {
  std::vector<Tensor> views;
  for (const Block& block : blocks_of(tensor, stripe)) {
    views.push_back(
        array.flat.as_strided({block.rows, block.columns}, {block.stride, 1},
                              array.flat.storage_offset() + block.offset - array.begin));
  }
  return views;
}

void copy_blocks(const std::vector<Tensor>& blocks, const Tensor& run, Direction direction) {
  std::int64_t at = 0;
  for (const Tensor& block : blocks) {
    const Tensor there = run.narrow(0, at, block.numel()).view(block.sizes());
    if (direction == Direction::kPack) {
      there.copy_(block);
    } else {
      block.copy_(there);
    }
    at += block.numel();
  }
}

std::optional<Tensor> as_run(const std::vector<Tensor>& blocks) {
  if (blocks.size() != 1 || blocks[0].size(0) != 1) return std::nullopt;
  return blocks[0][0];
}

}  // namespace copus
