#include "copus/cost/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "copus/spec/catalog.h"

namespace copus {
namespace {

constexpr Collective kOps[] = {Collective::kAllReduce, Collective::kReduceScatter,
                               Collective::kAllGather, Collective::kAllToAll};
constexpr double kMiB = 1024.0 * 1024.0;

ClusterSpec cluster_of_name(const std::string& name) { return load_cluster(name).value(); }

// The cluster that the tests vary.
ClusterSpec a100s() { return cluster_of_name("16x8xA100-80GB-SXM"); }

// Counts over all groups of `size` ranks at distance `stride`: the most members on one node, and
// the most nodes that one group touches. The groups lie in blocks of size*stride ranks. The test
// counts rank by rank, over enough blocks for the pattern to repeat.
struct Counted {
  std::int64_t fullest = 0;
  std::int64_t nodes = 0;
};
Counted count_members(std::int64_t size, std::int64_t stride, std::int64_t gpus_per_node) {
  Counted counted;
  for (std::int64_t block = 0; block < gpus_per_node; ++block) {
    for (std::int64_t offset = 0; offset < std::min(stride, gpus_per_node); ++offset) {
      std::map<std::int64_t, std::int64_t> members;
      for (std::int64_t i = 0; i < size; ++i) {
        ++members[(block * size * stride + offset + i * stride) / gpus_per_node];
      }
      counted.nodes = std::max(counted.nodes, static_cast<std::int64_t>(members.size()));
      for (const auto& [node, count] : members) counted.fullest = std::max(counted.fullest, count);
    }
  }
  return counted;
}

template <typename Visit>
void for_each_group(Visit visit) {
  for (const std::int64_t gpus_per_node : {1, 2, 4, 6, 8, 16, 72}) {
    for (const std::int64_t stride : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 64, 1000}) {
      for (const std::int64_t size : {2, 3, 4, 5, 8, 12, 16, 64, 100}) {
        SCOPED_TRACE("size " + std::to_string(size) + ", stride " + std::to_string(stride) + ", " +
                     std::to_string(gpus_per_node) + " per node");
        visit(size, stride, gpus_per_node);
      }
    }
  }
}

TEST(PlaceGroup, IsExactWhereGroupsFillTheirNodes) {
  for_each_group([](std::int64_t size, std::int64_t stride, std::int64_t gpus_per_node) {
    const std::int64_t span = size * stride;
    const bool aligned = gpus_per_node % span == 0 || span % gpus_per_node == 0;
    if (!aligned || (gpus_per_node % stride != 0 && stride % gpus_per_node != 0)) return;
    const Counted counted = count_members(size, stride, gpus_per_node);
    const GroupPlace place = place_group(size, stride, gpus_per_node);
    EXPECT_EQ(place.size, size);
    EXPECT_EQ(place.per_node, counted.fullest);
    EXPECT_EQ(place.nodes, counted.nodes);
    EXPECT_EQ(place.per_node * place.nodes, size);
  });
}

TEST(PlaceGroup, IsNeverPlacedBetterThanTheWorstOfItsKind) {
  // At every stride the group over the most nodes counts, because groups wait for each other.
  for_each_group([](std::int64_t size, std::int64_t stride, std::int64_t gpus_per_node) {
    const Counted counted = count_members(size, stride, gpus_per_node);
    const GroupPlace place = place_group(size, stride, gpus_per_node);
    EXPECT_EQ(place.size, size);
    EXPECT_GE(place.per_node, 1);
    EXPECT_LE(place.per_node, counted.fullest);
    EXPECT_GE(place.nodes, counted.nodes);
    EXPECT_LE(place.nodes, size);
  });
}

TEST(PlaceGroup, AtAStrideBeyondTheNodeHasOneMemberOnEach) {
  for (const std::int64_t stride : {8, 9, 12, 16, 1000}) {
    const GroupPlace place = place_group(5, stride, 8);
    EXPECT_EQ(place.per_node, 1) << stride;
    EXPECT_EQ(place.nodes, 5) << stride;
  }
}

TEST(PlaceGroup, ThatDoesNotDivideTheNodeIsCutByItsBoundary) {
  // In nodes of eight, GPUs 6, 7 and 8 are one group of three, on two nodes. The slowest group
  // decides.
  for (const std::int64_t size : {3, 5, 6, 7}) {
    EXPECT_GT(place_group(size, 1, 8).nodes, 1) << size;
  }
  for (const std::int64_t size : {2, 4, 8}) {
    EXPECT_EQ(place_group(size, 1, 8).nodes, 1) << size;
  }
}

TEST(PlaceGroup, OfOneIsOnOneNode) {
  const GroupPlace place = place_group(1, 1000, 8);
  EXPECT_EQ(place.per_node, 1);
  EXPECT_EQ(place.nodes, 1);
}

TEST(Collectives, AGroupOfOneAndAnEmptyMessageAreFree) {
  const CollectiveModel model(a100s());
  for (const Collective op : kOps) {
    EXPECT_EQ(model.time(op, place_group(1, 8, 8), gib(1)).v, 0);
    EXPECT_EQ(model.time(op, place_group(8, 1, 8), Bytes(0)).v, 0);
    EXPECT_EQ(model.intensity(op, place_group(1, 1, 8)), 0);
  }
  EXPECT_EQ(model.hop(1, 8, gib(1)).v, 0);
}

TEST(Collectives, AllReduceIsAReduceScatterAndAnAllGather) {
  // This holds for the bytes sent: large messages, one node, a switch that does not add.
  ClusterSpec cluster = a100s();
  cluster.gpu.in_network_reduction = 1;
  const CollectiveModel model(cluster);
  for (const std::int64_t size : {2, 4, 8}) {
    const GroupPlace group = place_group(size, 1, 8);
    const Seconds halves = model.time(Collective::kReduceScatter, group, gib(16)) +
                           model.time(Collective::kAllGather, group, gib(16));
    EXPECT_NEAR(model.time(Collective::kAllReduce, group, gib(16)) / halves, 1, 0.01) << size;
  }
}

TEST(Collectives, ASwitchThatAddsMakesAllReducesFasterAndNothingElse) {
  ClusterSpec plain = a100s(), adding = a100s();
  plain.gpu.in_network_reduction = 1;
  adding.gpu.in_network_reduction = 1.75;
  const CollectiveModel without(plain), with(adding);
  const GroupPlace node = place_group(8, 1, 8);
  EXPECT_LT(with.time(Collective::kAllReduce, node, gib(1)),
            without.time(Collective::kAllReduce, node, gib(1)) * 0.75);
  EXPECT_EQ(with.time(Collective::kAllGather, node, gib(1)),
            without.time(Collective::kAllGather, node, gib(1)));
  // Two ranks exchange halves directly, so the switch gains nothing.
  const GroupPlace pair = place_group(2, 1, 8);
  EXPECT_EQ(with.time(Collective::kAllReduce, pair, gib(1)),
            without.time(Collective::kAllReduce, pair, gib(1)));
}

TEST(Collectives, TimeGrowsWithBytes) {
  for (const std::string& gpu : catalog_gpu_names()) {
    const CollectiveModel model(cluster_of_name("16x8x" + gpu));
    for (const Collective op : kOps) {
      for (const GroupPlace group : {place_group(2, 1, 8), place_group(8, 1, 8),
                                     place_group(16, 8, 8), place_group(128, 1, 8)}) {
        Seconds before(0);
        for (const double bytes : {1.0, 1e2, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e11}) {
          const Seconds time = model.time(op, group, Bytes(bytes));
          EXPECT_GT(time, before) << gpu;
          EXPECT_TRUE(std::isfinite(time.v)) << gpu;
          before = time;
        }
      }
    }
  }
}

TEST(Collectives, TimeFallsWithBandwidth) {
  ClusterSpec slow = a100s(), fast_links = a100s(), fast_network = a100s();
  fast_links.gpu.link_bandwidth = slow.gpu.link_bandwidth * 2;
  fast_network.network.node_bandwidth = slow.network.node_bandwidth * 2;
  const CollectiveModel base(slow), links(fast_links), network(fast_network);
  const GroupPlace inside = place_group(8, 1, 8), across = place_group(16, 8, 8);
  for (const Collective op : kOps) {
    EXPECT_LT(links.time(op, inside, gib(1)), base.time(op, inside, gib(1)) * 0.51);
    EXPECT_LT(network.time(op, across, gib(1)), base.time(op, across, gib(1)) * 0.51);
    // A network that the group does not use makes no difference.
    EXPECT_EQ(network.time(op, inside, gib(1)), base.time(op, inside, gib(1)));
  }
}

TEST(Collectives, AreFasterInsideANodeThanAcross) {
  for (const std::string& gpu : catalog_gpu_names()) {
    const CollectiveModel model(cluster_of_name("16x8x" + gpu));
    for (const Collective op : kOps) {
      for (const std::int64_t size : {2, 4, 8}) {
        const Seconds inside = model.time(op, place_group(size, 1, 8), Bytes(64 * kMiB));
        EXPECT_LT(inside, model.time(op, place_group(size, 8, 8), Bytes(64 * kMiB)))
            << gpu << ", one member on each of " << size << " nodes";
        if (size > 2) {
          const GroupPlace two_nodes{size, size / 2, 2};
          EXPECT_LT(inside, model.time(op, two_nodes, Bytes(64 * kMiB)))
              << gpu << ", " << size << " members on two nodes";
        }
      }
    }
  }
}

TEST(Collectives, GroupsThatShareTheCardsGetTheirShare) {
  // A group with k of a node's eight GPUs shares the node's network with 8/k - 1 other groups.
  ClusterSpec cluster = a100s();
  cluster.network.node_bandwidth = gigabits_per_s(100);  // the bottleneck at every k
  const CollectiveModel model(cluster);
  for (const Collective op :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter}) {
    const BytesPerSec alone = model.rate(op, GroupPlace{128, 8, 16});
    for (const std::int64_t k : {1, 2, 4}) {
      const BytesPerSec shared = model.rate(op, GroupPlace{16 * k, k, 16});
      EXPECT_NEAR(shared / alone, static_cast<double>(k) / 8, 1e-9) << k;
    }
  }
}

TEST(Collectives, CongestionSlowsLargerGroups) {
  ClusterSpec cluster = a100s();
  cluster.network.scale_penalty = 0.1;
  const CollectiveModel model(cluster);
  BytesPerSec before(INFINITY);
  for (const std::int64_t nodes : {2, 4, 8, 16}) {
    const BytesPerSec rate = model.rate(Collective::kAllReduce, GroupPlace{nodes * 8, 8, nodes});
    EXPECT_LT(rate, before) << nodes;
    before = rate;
  }
}

TEST(Collectives, ATreeBeatsARingOnManyNodesForSmallMessages) {
  const ClusterSpec cluster = cluster_of_name("1024x8xA100-80GB-SXM");
  const CollectiveModel model(cluster);
  auto small = [&](Collective op, std::int64_t nodes) {
    return model.time(op, place_group(nodes, 8, 8), Bytes(1024));
  };
  // In a ring, each of the two halves of an all-reduce passes every node once.
  EXPECT_LT(small(Collective::kAllReduce, 1024), cluster.network.latency * (2 * 1024.0) * 0.1);
  // A tree has one more level for twice the nodes; a ring would take twice as long.
  const Seconds first = small(Collective::kAllReduce, 256) - small(Collective::kAllReduce, 128);
  const Seconds second = small(Collective::kAllReduce, 512) - small(Collective::kAllReduce, 256);
  EXPECT_NEAR(second / first, 1, 0.05);
  EXPECT_LT(small(Collective::kAllReduce, 512), small(Collective::kAllGather, 512));
}

TEST(Collectives, LatencyIsNeverLessOnMoreRanks) {
  const CollectiveModel model(a100s());
  for (const Collective op : kOps) {
    Seconds before(0);
    for (const std::int64_t size : {2, 4, 8, 16, 32, 64, 128}) {
      const Seconds time = model.time(op, place_group(size, 1, 8), Bytes(8));
      EXPECT_GE(time, before) << size;
      before = time;
    }
  }
}

TEST(Collectives, IntensityIsAShareOfTheLinks) {
  for (const std::string& gpu : catalog_gpu_names()) {
    const CollectiveModel model(cluster_of_name("16x8x" + gpu));
    for (const Collective op : kOps) {
      for (const std::int64_t stride : {1, 2, 8}) {
        const double share = model.intensity(op, place_group(16, stride, 8));
        EXPECT_GT(share, 0) << gpu;
        EXPECT_LE(share, 1) << gpu;
      }
    }
  }
}

TEST(Hop, IsShorterInsideANodeAndGrowsWithTheMessage) {
  const CollectiveModel model(a100s());
  const Seconds inside = model.hop(8, 1, Bytes(16 * kMiB));
  const Seconds across = model.hop(8, 8, Bytes(16 * kMiB));
  EXPECT_LT(inside, across);
  EXPECT_LT(model.hop(8, 8, Bytes(kMiB)), across);
  // A pipeline over two nodes crosses the network in one of seven hops, so its mean lies between.
  const Seconds mixed = model.hop(8, 2, Bytes(16 * kMiB));
  EXPECT_GT(mixed, inside);
  EXPECT_LT(mixed, across);
}

TEST(Hop, UsesOneCardAtMost) {
  // A single sender uses one card, not all eight.
  ClusterSpec cluster = a100s();
  const CollectiveModel model(cluster);
  const Seconds alone = model.hop(2, 8, gib(1));
  const BytesPerSec card = cluster.network.node_bandwidth / 8;
  EXPECT_GE(alone, gib(1) / card);
}

// Bus bandwidth of NCCL's all-reduce inside an A100 node in GB/s: 2(n-1)/n of the bytes, divided by
// the time. Source: the nccl-tests tables published with vTrain (arXiv 2312.12391),
// github.com/VIA-Research/vTrain, trace/a100/AR_GPU{2,4,8}_1M_1024M_LUT.
struct MeasuredCurve {
  std::int64_t gpus;
  double gigabytes_per_s[6];  // at 1, 4, 16, 64, 256 and 1024 MiB
};
constexpr MeasuredCurve kA100Curves[] = {
    {2, {23.7, 68.6, 127, 166, 184, 197}},
    {4, {30.6, 81.4, 140, 185, 209, 222}},
    {8, {19.8, 76.6, 126, 203, 217, 229}},
};

TEST(Collectives, FollowTheMeasuredAllReduceCurveOfAnA100Node) {
  const CollectiveModel model(cluster_of_name("1x8xA100-80GB-SXM"));
  double sum = 0, worst = 0;
  int points = 0;
  for (const MeasuredCurve& curve : kA100Curves) {
    double mib = 1;
    for (const double measured : curve.gigabytes_per_s) {
      const auto n = static_cast<double>(curve.gpus);
      const Seconds time =
          model.time(Collective::kAllReduce, place_group(curve.gpus, 1, 8), Bytes(mib * kMiB));
      const double predicted = 2 * (n - 1) / n * mib * kMiB / time.v / 1e9;
      const double error = std::abs(predicted / measured - 1);
      std::printf("%lld GPUs %6.0f MiB: %6.1f GB/s measured, %6.1f predicted (%+.1f%%)\n",
                  static_cast<long long>(curve.gpus), mib, measured, predicted,
                  100 * (predicted / measured - 1));
      sum += error;
      worst = std::max(worst, error);
      ++points;
      mib *= 4;
    }
  }
  std::printf("mean error %.1f%%, worst %.1f%%\n", 100 * sum / points, 100 * worst);
  EXPECT_LT(sum / points, 0.15);
  EXPECT_LT(worst, 0.35);
}

}  // namespace
}  // namespace copus
