#include <gtest/gtest.h>

#include <cmath>

#include "copus/goodput/goodput_testing.h"
#include "copus/goodput/noise_scale.h"

namespace copus {
namespace {

NoiseEstimate around(double gns, double factor) {
  NoiseEstimate estimate;
  estimate.gns = gns;
  estimate.low = gns / factor;
  estimate.high = gns * factor;
  return estimate;
}

TEST(CombineEstimates, TheSurerOneCountsMore) {
  const NoiseEstimate sure = around(100, 1.05), vague = around(10, 20);
  EXPECT_NEAR(combine_estimates(sure, vague, 0).gns, 100, 2);
  EXPECT_NEAR(combine_estimates(vague, sure, 0).gns, 100, 2);
  // Equally precise estimates give their geometric mean, with more precision than either.
  const NoiseEstimate both = combine_estimates(around(100, 2), around(25, 2), 0);
  EXPECT_NEAR(both.gns, 50, 1e-3);
  EXPECT_NEAR(std::log(both.spread()), std::log(4) / std::sqrt(2), 1e-3);
}

TEST(CombineEstimates, TheFactorsSpreadIsADoubtOfTheSecond) {
  const NoiseEstimate whole = around(100, 1.5), scales = around(50, 1.001);
  EXPECT_LT(combine_estimates(whole, scales, 0.01).gns, 51);
  EXPECT_GT(combine_estimates(whole, scales, 2).gns, 98);
}

TEST(CombineEstimates, OneThatSaysNothingIsLeftOut) {
  NoiseEstimate nothing = around(100, 2);
  nothing.low = 0;
  nothing.high = kInfinity;
  const NoiseEstimate second = combine_estimates(nothing, around(30, 2), 0.35);
  EXPECT_NEAR(second.gns, 30, 1e-9);
  EXPECT_GT(second.spread(), 4.01);  // its own interval and the factor's
  nothing.gns = kInfinity;
  EXPECT_NEAR(combine_estimates(nothing, around(30, 2), 0.35).gns, 30, 1e-9);
  EXPECT_EQ(combine_estimates(around(30, 2), nothing, 0.35).gns, 30);
  // An estimate without an upper end still gives its lower end.
  nothing.low = 500;
  EXPECT_EQ(combine_estimates(nothing, around(30, 2), 0.35).gns, 500);
}

}  // namespace
}  // namespace copus
