#include "copus/train/move/host_state.h"

#include <string>
#include <unordered_map>

namespace copus {
namespace {

enum Array : std::size_t { kValues, kMaster, kMoment1, kMoment2, kArrays };

}  // namespace

std::vector<std::int64_t> state_addresses(const Layout& layout) {
  std::vector<std::int64_t> addresses;
  for (const auto& parameters : layout.parameters) {
    for (const Bucket& bucket : parameters->buckets()) {
      for (const Tensor* array :
           {&bucket.values, &bucket.master, &bucket.moment1, &bucket.moment2}) {
        addresses.push_back(reinterpret_cast<std::intptr_t>(array->data_ptr()));
      }
    }
  }
  return addresses;
}

HostState::HostState(const LayoutChange& change, const ParallelPlan& plan, int rank,
                     std::span<const std::int64_t> addresses)
    : bf16_(change.bf16), addresses_(addresses.begin(), addresses.end()) {
  std::unordered_map<std::string, std::size_t> index;
  for (const TensorSpec& tensor : model_tensors(change.model)) {
    index.emplace(tensor.name, index.size());
  }
  homes_.resize(index.size());
  const Coordinates at = RankGrid(plan).coordinates_of(rank);
  for (std::int64_t i = 0; i < plan.vp; ++i) {
    const ChunkSpec chunk = chunk_spec(change.model, plan, at.pp + i * plan.pp);
    for (BucketPlacement& bucket :
         place_chunk(change.model, chunk, plan, at, change.bucket_elements)) {
      for (PlacedTensor& tensor : bucket.tensors) {
        Home& home = homes_[index.at(tensor.spec.name)];
        home = {owned_begin_.size(), std::move(tensor)};
      }
      owned_begin_.push_back(bucket.owned_begin);
    }
  }
  if (addresses_.size() != kArrays * owned_begin_.size()) {
    throw std::runtime_error(fmt::format("rank {} has {} arrays of state, but its plan has {}",
                                         rank, addresses_.size(), kArrays * owned_begin_.size()));
  }
}

std::vector<iovec> HostState::segments(const std::vector<StatePart>& parts) const {
  std::vector<iovec> all;
  for (const StatePart& part : parts) {
    const Home& home = homes_[part.tensor];
    const std::vector<Block> blocks = blocks_of(home.tensor, part.stripe);
    const auto add = [&](Array array) {
      const bool values = array == kValues;
      const std::int64_t size = values && bf16_ ? 2 : 4;
      const std::int64_t begin = values ? 0 : owned_begin_[home.bucket];
      const std::int64_t address = addresses_[home.bucket * kArrays + array];
      for (const Block& block : blocks) {
        for (std::int64_t row = 0; row < block.rows; ++row) {
          const std::int64_t element = block.offset + row * block.stride - begin;
          all.push_back({reinterpret_cast<void*>(address + element * size),
                         static_cast<std::size_t>(block.columns * size)});
        }
      }
    };
    if (part.kind == StateKind::kValues) {
      add(kValues);
      continue;
    }
    if (bf16_) add(kMaster);
    add(kMoment1);
    add(kMoment2);
  }
  return all;
}

}  // namespace copus
