#include "copus/spec/stage_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace copus {
namespace {

std::vector<std::int64_t> balanced_split(std::int64_t layers, std::int64_t pp, double first,
                                         double last) {
  return expand(balance_chunks(layers, pp, first, last), pp);
}

double largest_stage(const std::vector<std::int64_t>& split, double first, double last) {
  double largest = 0;
  for (std::size_t i = 0; i < split.size(); ++i) {
    double load = static_cast<double>(split[i]);
    if (i == 0) load += first;
    if (i + 1 == split.size()) load += last;
    largest = std::max(largest, load);
  }
  return largest;
}

// Returns the smallest possible load of the largest stage, from trying every split of `layers`.
double brute_force(std::int64_t layers, std::int64_t pp, double first, double last) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::int64_t> split;
  const std::function<void(std::int64_t)> extend = [&](std::int64_t left) {
    if (static_cast<std::int64_t>(split.size()) + 1 == pp) {
      split.push_back(left);
      best = std::min(best, largest_stage(split, first, last));
      split.pop_back();
      return;
    }
    for (std::int64_t n = 0; n <= left; ++n) {
      split.push_back(n);
      extend(left - n);
      split.pop_back();
    }
  };
  extend(layers);
  return best;
}

TEST(BalancedSplit, IsAsGoodAsTryingEverySplit) {
  for (std::int64_t layers = 1; layers <= 9; ++layers) {
    for (std::int64_t pp = 1; pp <= 5; ++pp) {
      for (const double first : {0.0, 0.3, 1.0, 2.5, 20.0}) {
        for (const double last : {0.0, 0.3, 0.7, 1.0, 4.0, 25.0}) {
          const auto split = balanced_split(layers, pp, first, last);
          ASSERT_EQ(static_cast<std::int64_t>(split.size()), pp);
          EXPECT_EQ(std::accumulate(split.begin(), split.end(), std::int64_t{0}), layers);
          EXPECT_NEAR(largest_stage(split, first, last), brute_force(layers, pp, first, last), 1e-5)
              << layers << " layers, pp " << pp << ", " << first << " + " << last;
        }
      }
    }
  }
}

// A chunk in the middle has only its layers, so validate() refuses such a chunk without layers.
TEST(BalancedSplit, LeavesOnlyEndsWithoutLayers) {
  std::mt19937_64 random(3);
  std::exponential_distribution<double> extra(0.5);
  for (int i = 0; i < 2000; ++i) {
    const auto layers = std::uniform_int_distribution<std::int64_t>(1, 130)(random);
    const auto pp = std::uniform_int_distribution<std::int64_t>(
        1, std::min<std::int64_t>(layers + 2, 64))(random);
    const auto split = balanced_split(layers, pp, extra(random), extra(random));
    EXPECT_GE(*std::min_element(split.begin(), split.end()), 0);
    for (std::size_t stage = 1; stage + 1 < split.size(); ++stage)
      EXPECT_GE(split[stage], 1) << layers << " on " << pp;
  }
}

TEST(BalancedSplit, IsEvenBesideTheExtras) {
  using Split = std::vector<std::int64_t>;
  EXPECT_EQ(balanced_split(32, 4, 0, 0), (Split{8, 8, 8, 8}));
  EXPECT_EQ(balanced_split(30, 4, 0, 0), (Split{7, 8, 8, 7}));
  EXPECT_EQ(balanced_split(29, 4, 0, 0), (Split{7, 8, 7, 7}));
  EXPECT_EQ(balanced_split(8, 4, 0, 5), (Split{2, 3, 3, 0}));
  EXPECT_EQ(balanced_split(28, 8, 0, 3.9), (Split{4, 4, 4, 4, 4, 4, 4, 0}));
  EXPECT_EQ(balanced_split(126, 8, 0, 2), (Split{16, 16, 16, 16, 16, 16, 16, 14}));
}

TEST(BalancedSplit, SurvivesExtrasThatMakeNoSense) {
  for (const double extra : {-3.0, 1e300, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    const auto split = balanced_split(10, 3, extra, extra);
    EXPECT_EQ(std::accumulate(split.begin(), split.end(), std::int64_t{0}), 10);
  }
}

}  // namespace
}  // namespace copus
