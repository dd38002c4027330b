// CollectiveModel: the time of one collective on a cluster's topology.
//
// A group is described by how many of its members share a node and over how many nodes it spreads.
// All groups of the same kind communicate at the same time, so a group with k of a node's g GPUs
// has k/g of that node's network.
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

// Places a group of `size` ranks at distance `stride` from each other. Ranks are numbered node by
// node.
GroupPlace place_group(std::int64_t size, std::int64_t stride, std::int64_t gpus_per_node);

// Places the pair of a pipeline's first and last stage. They are at least half the cluster apart,
// so they share a node only if the cluster has a single node.
constexpr GroupPlace place_pipeline_ends(std::int64_t nodes) {
  return nodes == 1 ? GroupPlace{2, 2, 1} : GroupPlace{2, 1, 2};
}

class CollectiveModel {
 public:
  explicit CollectiveModel(const ClusterSpec& cluster);

  // Time of one collective; 0 for a group of one. `bytes` is the whole buffer: the gathered size of
  // an all-gather or reduce-scatter, and for an all-to-all what one rank holds before it sends.
  Seconds time(Collective op, GroupPlace group, Bytes bytes) const noexcept;

  // Time of an all-to-all in which each member sends `inside` to members on its node, and `outside`
  // to others. Both happen at once.
  Seconds exchange(GroupPlace group, Bytes inside, Bytes outside) const noexcept;

  // Time of one message to the next stage, `stride` ranks away: the mean over the hops of a
  // pipeline of `pp` stages.
  Seconds hop(std::int64_t pp, std::int64_t stride, Bytes bytes) const noexcept;

  // The group's rate relative to the links inside a node, 0 to 1. A transfer slows the computation
  // beside it in proportion to this rate, so a transfer over a slow network costs it little.
  double intensity(Collective op, GroupPlace group) const noexcept;
  Seconds time_at_link_rate(Bytes bytes) const noexcept { return bytes / link_; }

  // Rate at which one member of the group sends, efficiencies included, latency excluded.
  BytesPerSec rate(Collective op, GroupPlace group) const noexcept;

 private:
  Seconds latency(Collective op, GroupPlace group) const noexcept;
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
