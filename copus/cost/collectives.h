// Time of one collective on the real topology.
//
// A group is described by where its members sit: how many share a node, over how many nodes it
// spreads. All groups of the same kind communicate at the same time, so a group with k of a node's
// g GPUs has k/g of that node's network.
#pragma once

#include <cstdint>

#include "copus/base/units.h"
#include "copus/spec/cluster_spec.h"

namespace copus {

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kAllToAll };

// Where a communication group sits.
struct GroupPlace {
  std::int64_t size = 1;      // members
  std::int64_t per_node = 1;  // members that share a node
  std::int64_t nodes = 1;     // nodes it spreads over
};

// The group of `size` ranks at distance `stride` from each other, ranks numbered node by node.
GroupPlace place_group(std::int64_t size, std::int64_t stride, std::int64_t gpus_per_node);

// First and last stage of a pipeline: at least half the cluster apart, so in one node only if there
// is but one.
constexpr GroupPlace place_pipeline_ends(std::int64_t nodes) {
  return nodes == 1 ? GroupPlace{2, 2, 1} : GroupPlace{2, 1, 2};
}

class CollectiveModel {
 public:
  explicit CollectiveModel(const ClusterSpec& cluster);

  // `bytes` is the whole buffer: for an all-gather and reduce-scatter the gathered size, for an
  // all-to-all what one rank holds before it sends. Zero for a group of one.
  Seconds time(Collective op, GroupPlace group, Bytes bytes) const noexcept;

  // One message to the rank at distance `stride` in the pipeline of `pp` stages: the mean over its
  // hops.
  Seconds hop(std::int64_t pp, std::int64_t stride, Bytes bytes) const noexcept;

  // How fast the group moves data, relative to the links inside a node: what a transfer takes from
  // the computation beside it is in proportion, and a slow network takes next to nothing.
  double intensity(Collective op, GroupPlace group) const noexcept;
  Seconds time_at_link_rate(Bytes bytes) const noexcept { return bytes / link_; }

  // Rate at which one member of the group sends, after efficiencies, before latency.
  BytesPerSec rate(Collective op, GroupPlace group) const noexcept;

 private:
  double link_share(std::int64_t members) const noexcept;
  double switch_gain(std::int64_t members) const noexcept;

  std::int64_t gpus_per_node_;
  LinkTopology topology_;
  BytesPerSec link_;
  Seconds link_latency_, link_base_latency_;
  double in_network_reduction_;
  BytesPerSec network_;
  std::int64_t cards_;
  Seconds network_latency_, network_base_latency_;
  double scale_penalty_;
};

}  // namespace copus
