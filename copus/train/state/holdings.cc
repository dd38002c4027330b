#include "copus/train/state/holdings.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "copus/base/check.h"

namespace copus {

Holdings::Holdings(const ModelSpec& model, const ParallelPlan& plan, std::int64_t bucket_elements)
    : plan_(plan), tensors_(model_tensors(model)), homes_(tensors_.size()) {
  COPUS_CHECK(plan.cp == 1 && plan.ep == 1 && plan.zero <= 1);
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < tensors_.size(); ++i) index.emplace(tensors_[i].name, i);
  for (std::int64_t chunk = 0; chunk < plan.pp * plan.vp; ++chunk) {
    for (const BucketPlacement& bucket :
         place_chunk(model, chunk_spec(model, plan, chunk), plan, {}, bucket_elements)) {
      for (const PlacedTensor& tensor : bucket.tensors) {
        Home& home = homes_[index.at(tensor.spec.name)];
        if (home.stage_count == 0) {
          home.offset = tensor.offset;
          home.size = tensor.size;
          home.padded = bucket.padded;
        }
        // Only a shared embedding is held twice. It is alone in its bucket at both ends of the
        // pipeline, so its place is the same.
        COPUS_CHECK(home.offset == tensor.offset && home.padded == bucket.padded);
        COPUS_CHECK(home.stage_count < home.stages.size());
        home.stages[home.stage_count++] = chunk % plan.pp;
      }
    }
  }
  const RankGrid grid(plan);
  for (std::int64_t rank = 0; rank < grid.size(); ++rank) {
    coordinates_.push_back(grid.coordinates_of(rank));
  }
}

bool Holdings::sharded(StateKind kind) const {
  return kind == StateKind::kOptimizer && plan_.zero >= 1;
}

template <typename AddPart>
std::vector<std::vector<Holding>> Holdings::lanes(std::size_t tensor, AddPart add_part) const {
  const TensorSpec& spec = tensors_[tensor];
  std::vector<std::vector<Holding>> result;
  for (std::int64_t tp = 0; tp < plan_.tp;) {
    const Shard shard = shard_of(spec, plan_.tp, tp);
    if (result.empty() || spec.cut == Cut::kColumns) result.emplace_back();
    RankBlock ranks{homes_[tensor].stages, homes_[tensor].stage_count, {}, {tp, tp + shard.copies}};
    add_part([&](const Range& local, const Range& dp) {
      const Stripe stripe = stripe_of(spec, shard, local);
      ranks.dp = dp;
      if (!stripe.empty() && dp.size() > 0) result.back().push_back({stripe, ranks});
    });
    tp += shard.copies;
  }
  std::erase_if(result, [](const std::vector<Holding>& lane) { return lane.empty(); });
  return result;
}

std::vector<std::vector<Holding>> Holdings::held(std::size_t tensor, StateKind kind) const {
  const Home& home = homes_[tensor];
  return lanes(tensor, [&](const auto& add) {
    if (!sharded(kind)) return add({0, home.size}, {0, plan_.dp});
    const std::int64_t end = home.offset + home.size;
    const std::int64_t length = owned_range(plan_, home.padded, 0).size();
    for (std::int64_t dp = home.offset / length; dp * length < end; ++dp) {
      const Range owned = owned_range(plan_, home.padded, dp);
      add({std::max(owned.begin, home.offset) - home.offset,
           std::min(owned.end, end) - home.offset},
          {dp, dp + 1});
    }
  });
}

std::vector<std::vector<Holding>> Holdings::needed(std::size_t tensor, StateKind kind,
                                                   bool values_from_master) const {
  if (kind == StateKind::kOptimizer || !values_from_master) return held(tensor, kind);
  if (plan_.zero == 0) return {};
  const Home& home = homes_[tensor];
  return lanes(tensor, [&](const auto& add) {
    const std::int64_t end = home.offset + home.size;
    const std::int64_t length = owned_range(plan_, home.padded, 0).size();
    const std::int64_t first_owner = home.offset / length;
    const std::int64_t end_owner = (end - 1) / length + 1;
    add({0, home.size}, {0, first_owner});
    for (std::int64_t dp = first_owner; dp < end_owner; ++dp) {
      const Range owned = owned_range(plan_, home.padded, dp);
      add({0, std::max(owned.begin, home.offset) - home.offset}, {dp, dp + 1});
      add({std::min(owned.end, end) - home.offset, home.size}, {dp, dp + 1});
    }
    add({0, home.size}, {end_owner, plan_.dp});
  });
}

std::int64_t Holdings::copies(std::size_t tensor, StateKind kind) const {
  return static_cast<std::int64_t>(homes_[tensor].stage_count) *
         shard_of(tensors_[tensor], plan_.tp, 0).copies * (sharded(kind) ? 1 : plan_.dp);
}

bool Holdings::contains(const RankBlock& ranks, int rank) const {
  const Coordinates& at = coordinates_[static_cast<std::size_t>(rank)];
  return at.dp >= ranks.dp.begin && at.dp < ranks.dp.end && at.tp >= ranks.tp.begin &&
         at.tp < ranks.tp.end &&
         (at.pp == ranks.stages[0] || (ranks.stage_count > 1 && at.pp == ranks.stages[1]));
}

}  // namespace copus
