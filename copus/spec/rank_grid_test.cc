#include "copus/spec/rank_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace copus {
namespace {

using Ranks = std::vector<std::int64_t>;

constexpr Axis kAxes[] = {Axis::kTp,  Axis::kCp, Axis::kDp,  Axis::kPp,
                          Axis::kEtp, Axis::kEp, Axis::kEdp, Axis::kDpCp};
constexpr Axis kExpertAxes[] = {Axis::kEtp, Axis::kEp, Axis::kEdp};

ParallelPlan plan_of(std::int64_t tp, std::int64_t cp, std::int64_t dp, std::int64_t pp,
                     std::int64_t ep = 1) {
  ParallelPlan plan;
  plan.tp = tp;
  plan.cp = cp;
  plan.dp = dp;
  plan.pp = pp;
  plan.ep = ep;
  return plan;
}

template <typename Visit>
void for_each_grid(Visit visit) {
  for (const std::int64_t tp : {1, 2, 3}) {
    for (const std::int64_t cp : {1, 2, 4}) {
      for (const std::int64_t dp : {1, 2, 3, 4}) {
        for (const std::int64_t pp : {1, 2, 5}) {
          for (std::int64_t ep = 1; ep <= tp * dp * cp; ++ep) {
            for (const std::int64_t etp : {0, 1, 2}) {
              ParallelPlan plan = plan_of(tp, cp, dp, pp, ep);
              plan.etp = etp;
              if (tp * dp * cp % (ep * plan.expert_tp()) == 0) visit(plan);
            }
          }
        }
      }
    }
  }
}

TEST(RankGrid, RankAndCoordinatesAreInverse) {
  for_each_grid([](const ParallelPlan& plan) {
    const RankGrid grid(plan);
    ASSERT_EQ(grid.size(), plan.gpus());
    for (std::int64_t rank = 0; rank < grid.size(); ++rank) {
      const Coordinates c = grid.coordinates_of(rank);
      EXPECT_TRUE(c.tp < plan.tp && c.cp < plan.cp && c.dp < plan.dp && c.pp < plan.pp);
      EXPECT_EQ(grid.rank_of(c), rank);
    }
  });
}

TEST(RankGrid, GroupsOfEveryAxisPartitionTheRanks) {
  for_each_grid([](const ParallelPlan& plan) {
    const RankGrid grid(plan);
    for (const Axis axis : kAxes) {
      std::vector<int> seen(static_cast<std::size_t>(grid.size()), 0);
      for (std::int64_t rank = 0; rank < grid.size(); ++rank) {
        const std::vector<std::int64_t> group = grid.group_of(rank, axis);
        ASSERT_EQ(static_cast<std::int64_t>(group.size()), grid.group_size(axis));
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
        EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1) << to_string(axis);
        // Every member has the same group, so groups are equal or disjoint.
        for (const std::int64_t member : group) {
          EXPECT_EQ(grid.group_of(member, axis), group);
          if (group.front() == rank) ++seen[static_cast<std::size_t>(member)];
        }
      }
      for (const int times : seen) EXPECT_EQ(times, 1) << to_string(axis);
    }
  });
}

TEST(RankGrid, MembersOfAGroupDifferInItsAxisOnly) {
  for_each_grid([](const ParallelPlan& plan) {
    const RankGrid grid(plan);
    for (const Axis axis : kAxes) {
      if (std::count(std::begin(kExpertAxes), std::end(kExpertAxes), axis) > 0) continue;
      const bool inside = axis == Axis::kDpCp;
      for (std::int64_t rank = 0; rank < grid.size(); ++rank) {
        const Coordinates a = grid.coordinates_of(rank);
        for (const std::int64_t member : grid.group_of(rank, axis)) {
          const Coordinates b = grid.coordinates_of(member);
          EXPECT_TRUE(axis == Axis::kTp || a.tp == b.tp);
          EXPECT_TRUE(axis == Axis::kPp || a.pp == b.pp);
          EXPECT_TRUE(axis == Axis::kCp || inside || a.cp == b.cp);
          EXPECT_TRUE(axis == Axis::kDp || inside || a.dp == b.dp);
        }
      }
    }
  });
}

TEST(RankGrid, ExpertAxesSpanEachStageAndMeetInOneRank) {
  for_each_grid([](const ParallelPlan& plan) {
    const RankGrid grid(plan);
    const std::int64_t stage = plan.tp * plan.cp * plan.dp;
    EXPECT_EQ(
        grid.group_size(Axis::kEtp) * grid.group_size(Axis::kEp) * grid.group_size(Axis::kEdp),
        stage);
    for (std::int64_t rank = 0; rank < grid.size(); ++rank) {
      for (const Axis axis : kExpertAxes) {
        for (const std::int64_t member : grid.group_of(rank, axis))
          EXPECT_EQ(member / stage, rank / stage) << to_string(axis);
        for (const Axis other : kExpertAxes) {
          if (axis == other) continue;
          const Ranks a = grid.group_of(rank, axis), b = grid.group_of(rank, other);
          Ranks both;
          std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
          EXPECT_EQ(both, Ranks{rank});
        }
      }
    }
  });
}

TEST(RankGrid, OrderIsTensorThenContextThenDataThenPipeline) {
  const RankGrid grid(plan_of(2, 2, 2, 2));
  EXPECT_EQ(grid.group_of(0, Axis::kTp), (Ranks{0, 1}));
  EXPECT_EQ(grid.group_of(0, Axis::kCp), (Ranks{0, 2}));
  EXPECT_EQ(grid.group_of(0, Axis::kDp), (Ranks{0, 4}));
  EXPECT_EQ(grid.group_of(0, Axis::kPp), (Ranks{0, 8}));
  EXPECT_EQ(grid.group_of(13, Axis::kDpCp), (Ranks{9, 11, 13, 15}));
}

TEST(RankGrid, ExpertGroupsAreConsecutiveBlocksOfTheReplicas) {
  // Replicas of tensor rank 1 on stage 0, in order (dp, cp): 1, 3, 5, 7, 9, 11, 13, 15.
  const RankGrid grid(plan_of(2, 2, 4, 1, 4));
  EXPECT_EQ(grid.group_of(3, Axis::kEp), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(grid.group_of(15, Axis::kEp), (Ranks{9, 11, 13, 15}));
  EXPECT_EQ(grid.stride(Axis::kEp), 2);
}

TEST(RankGrid, GroupsOfUncutExpertsReachOverTensorRanks) {
  ParallelPlan plan = plan_of(2, 1, 4, 2, 4);
  plan.etp = 1;
  const RankGrid grid(plan);
  EXPECT_EQ(grid.group_of(2, Axis::kEp), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(grid.group_of(2, Axis::kEdp), (Ranks{2, 6}));
  EXPECT_EQ(grid.group_of(13, Axis::kEp), (Ranks{12, 13, 14, 15}));
}

}  // namespace
}  // namespace copus
