#include "copus/train/state/placement.h"

#include <algorithm>

namespace copus {

Range owned_range(const ParallelPlan& plan, std::int64_t padded, std::int64_t dp) {
  if (plan.zero == 0) return {0, padded};
  const std::int64_t length = padded / plan.dp;
  return {dp * length, (dp + 1) * length};
}

std::vector<BucketPlacement> place_chunk(const ModelSpec& model, const ChunkSpec& chunk,
                                         const ParallelPlan& plan, const Coordinates& at,
                                         std::int64_t bucket_elements) {
  const std::vector<ParameterSpec> specs = chunk_parameters(model, chunk);
  const bool share_ends = model.tied_embeddings && plan.pp > 1;
  const auto is_tied = [&](std::size_t i) { return share_ends && specs[i].name == "embed.tokens"; };

  // The backward pass finishes the last parameters first.
  std::vector<std::size_t> order;
  for (std::size_t i = specs.size(); i-- > 0;) order.push_back(i);
  // The shared embedding comes last, so that no other parameter waits while both ends of the
  // pipeline sum its gradients.
  std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return !is_tied(i); });

  std::vector<BucketPlacement> buckets;
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t open[2] = {kNone, kNone};  // by decay
  for (const std::size_t i : order) {
    const ParameterSpec& parameter = specs[i];
    const bool tied = is_tied(i);
    std::size_t slot = open[parameter.decay ? 1 : 0];
    if (tied || slot == kNone || buckets[slot].size >= bucket_elements) {
      slot = buckets.size();
      buckets.emplace_back();
      buckets[slot].decay = parameter.decay;
      buckets[slot].tied = tied;
      if (!tied) open[parameter.decay ? 1 : 0] = slot;
    }
    BucketPlacement& bucket = buckets[slot];
    bucket.parameters.push_back({i, bucket.size});
    for (const TensorSpec& tensor : parameter.tensors) {
      const Shard shard = shard_of(tensor, plan.tp, at.tp);
      const std::int64_t size = element_count(local_shape(tensor, shard));
      bucket.tensors.push_back({tensor, shard, bucket.size, size});
      bucket.size += size;
    }
  }
  for (BucketPlacement& bucket : buckets) {
    bucket.padded = (bucket.size + plan.dp - 1) / plan.dp * plan.dp;
    const Range owned = owned_range(plan, bucket.padded, at.dp);
    bucket.owned_begin = owned.begin;
    bucket.owned_length = owned.size();
  }
  return buckets;
}

}  // namespace copus
