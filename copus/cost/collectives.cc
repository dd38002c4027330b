#include "copus/cost/collectives.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace copus {
namespace {

double log2_ceil(std::int64_t n) {
  return n <= 1 ? 0.0 : static_cast<double>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

}  // namespace

GroupPlace place_group(std::int64_t size, std::int64_t stride, std::int64_t gpus_per_node) {
  GroupPlace place;
  place.size = size;
  if (size <= 1) return place;
  // The groups lie in consecutive blocks of size*stride ranks.
  const std::int64_t block = size * stride;
  if (gpus_per_node % block == 0) {
    place.per_node = size;
  } else if (block % gpus_per_node == 0) {
    place.per_node = std::max<std::int64_t>(1, std::min(size, gpus_per_node / stride));
    place.nodes = size / place.per_node;
  } else {
    // Some blocks straddle a node boundary. The one over the most nodes counts, because all groups
    // wait for each other.
    const std::int64_t reach = block + gpus_per_node - std::gcd(block, gpus_per_node);
    place.nodes = std::min(size, (reach + gpus_per_node - 1) / gpus_per_node);
    place.per_node = std::max<std::int64_t>(1, size / place.nodes);
  }
  return place;
}

CollectiveModel::CollectiveModel(const ClusterSpec& cluster)
    : gpus_per_node_(cluster.gpus_per_node),
      topology_(cluster.gpu.link_topology),
      link_(cluster.gpu.link_bandwidth * cluster.gpu.link_efficiency),
      link_latency_(cluster.gpu.link_latency),
      link_base_latency_(cluster.gpu.link_base_latency),
      in_network_reduction_(cluster.gpu.in_network_reduction),
      network_(cluster.network.node_bandwidth *
               (cluster.network.efficiency /
                (1 + cluster.network.congestion * congestion_growth(cluster.nodes)))),
      // Assumes one card per 100 Gb/s, at most one per GPU. One flow cannot use more than one card.
      cards_(std::clamp<std::int64_t>(
          std::llround(cluster.network.node_bandwidth / gigabits_per_s(100)), 1,
          cluster.gpus_per_node)),
      network_latency_(cluster.network.latency),
      network_base_latency_(cluster.network.base_latency),
      scale_penalty_(cluster.network.scale_penalty) {}

// Share of a GPU's links that a group of `members` neighbours inside the node can use.
double CollectiveModel::link_share(std::int64_t members) const noexcept {
  const double n = static_cast<double>(members);
  switch (topology_) {
    case LinkTopology::kSwitch:
      // Two ranks have one ring, larger groups have several. Measured on A100: 188, 210 and
      // 224 GB/s for 2, 4 and 8 ranks.
      return 1.0 - 0.32 / n;
    case LinkTopology::kCubeMesh: {
      // Each GPU has six links. GPUs 0 and 1 can use one of them, a group of four GPUs uses four,
      // the whole node uses six; groups of other sizes find fewer rings. Measured on V100: 23, 46,
      // 88, 37, 47, 87 and 136 GB/s for 2 to 8 ranks.
      constexpr double kLinks[] = {1, 2, 4, 1.65, 2, 4, 6};
      return kLinks[std::clamp<std::int64_t>(members, 2, 8) - 2] / 6;
    }
    case LinkTopology::kMesh:
      return std::min(1.0,
                      (n - 1) / static_cast<double>(std::max<std::int64_t>(1, gpus_per_node_ - 1)));
    case LinkTopology::kRing:
      return members <= 2 ? 0.5 : 1.0;
    case LinkTopology::kPcie:
      return 1.0;
  }
  return 1.0;
}

// How much faster an all-reduce of `members` GPUs is because the switch adds. Such a switch moves
// (n+1)/n of the buffer per GPU, a ring 2(n-1)/n. So two ranks gain nothing and a whole node gains
// most; in_network_reduction is the gain of the whole node.
double CollectiveModel::switch_gain(std::int64_t members) const noexcept {
  auto ideal = [](double n) { return 2 * (n - 1) / (n + 1); };
  const double whole = ideal(static_cast<double>(std::max<std::int64_t>(2, gpus_per_node_)));
  return std::max(1.0, in_network_reduction_ * ideal(static_cast<double>(members)) / whole);
}

BytesPerSec CollectiveModel::rate(Collective op, GroupPlace group) const noexcept {
  const BytesPerSec inside = link_ * (group.per_node > 1 ? link_share(group.per_node) : 1.0);
  if (group.nodes <= 1)
    return op == Collective::kAllReduce ? inside * switch_gain(group.size) : inside;
  const double share = static_cast<double>(group.per_node) / static_cast<double>(gpus_per_node_);
  const double scale = 1.0 + scale_penalty_ * log2_ceil(group.nodes);
  const BytesPerSec outside = network_ * (share / scale);
  if (op == Collective::kAllToAll) {
    // Each member sends to all peers at once. Its share of the network bounds the data that leaves
    // the node; the links bound the rest.
    const double peers = static_cast<double>(group.size - 1);
    const double leaving = static_cast<double>(group.size - group.per_node) / peers;
    const BytesPerSec own = outside / static_cast<double>(group.per_node);
    return group.per_node > 1 ? min(inside / std::max(1e-9, 1.0 - leaving), own / leaving) : own;
  }
  return group.per_node > 1 ? min(inside, outside) : outside;
}

double CollectiveModel::intensity(Collective op, GroupPlace group) const noexcept {
  return group.size <= 1 ? 0 : std::min(1.0, rate(op, group) / link_);
}

Seconds CollectiveModel::latency(Collective op, GroupPlace group) const noexcept {
  const double n = static_cast<double>(group.size);
  const double passes = op == Collective::kAllReduce ? 2 : 1;
  if (group.nodes <= 1) {
    const double steps = op == Collective::kAllToAll ? 1 : n - 1;
    return link_base_latency_ + link_latency_ * (passes * steps);
  }
  const double local = static_cast<double>(group.per_node - 1);
  // A ring takes one step per member, each as slow as the slowest link, which is the network's. A
  // tree takes one level per doubling of the nodes, at the cost of some bandwidth. For all-reduce
  // the communication library takes the faster one. It has no tree for all-gather and
  // reduce-scatter.
  const Seconds ring = passes * (n - 1) * network_latency_;
  const Seconds tree = passes * (log2_ceil(group.nodes) * network_latency_ + local * link_latency_);
  return link_base_latency_ + network_base_latency_ +
         (op == Collective::kAllReduce  ? min(ring, tree)
          : op == Collective::kAllToAll ? tree
                                        : ring);
}

Seconds CollectiveModel::time(Collective op, GroupPlace group, Bytes bytes) const noexcept {
  if (group.size <= 1 || bytes.v <= 0) return Seconds(0);
  const double n = static_cast<double>(group.size);
  const double passes = op == Collective::kAllReduce ? 2 : 1;
  const Bytes wire = bytes * (passes * (n - 1) / n);
  return latency(op, group) + wire / rate(op, group);
}

Seconds CollectiveModel::exchange(GroupPlace group, Bytes inside, Bytes outside) const noexcept {
  if (group.size <= 1) return Seconds(0);
  const double scale = 1.0 + scale_penalty_ * log2_ceil(group.nodes);
  const BytesPerSec links = link_ * (group.per_node > 1 ? link_share(group.per_node) : 1.0);
  const BytesPerSec own = network_ / (scale * static_cast<double>(gpus_per_node_));
  return latency(Collective::kAllToAll, group) + max(inside / links, outside / own);
}

Seconds CollectiveModel::hop(std::int64_t pp, std::int64_t stride, Bytes bytes) const noexcept {
  if (pp <= 1) return Seconds(0);
  const GroupPlace place = place_group(pp, stride, gpus_per_node_);
  const Seconds inside = link_latency_ + bytes / (link_ * link_share(2));
  // `stride` neighbours send across the same node boundary at once, each over at most one card.
  const double senders = static_cast<double>(std::min(stride, gpus_per_node_));
  const BytesPerSec card = min(network_ / senders, network_ / static_cast<double>(cards_));
  const Seconds outside = network_latency_ + link_latency_ + bytes / card;
  const double crossings = static_cast<double>(place.nodes - 1);
  const double hops = static_cast<double>(pp - 1);
  return (outside * crossings + inside * (hops - crossings)) / hops;
}

}  // namespace copus
