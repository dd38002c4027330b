#include "copus/train/health/bad_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace copus {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Losses that fall slowly, with a ripple of 2%.
double loss_at(int step) { return 4.0 * std::exp(-0.001 * step) + 0.08 * std::sin(1.7 * step); }
double norm_at(int step) { return 1.0 + 0.3 * std::sin(2.3 * step); }

BadSteps after(int steps, const BadStepOptions& options) {
  BadSteps rule(options);
  for (int i = 0; i < steps; ++i) EXPECT_EQ(rule.judge(loss_at(i), norm_at(i)), "") << i;
  return rule;
}

TEST(BadSteps, WhatIsNotFiniteIsBadWithAnyRule) {
  for (const BadStepOptions& options :
       {BadStepOptions{}, BadStepOptions{.action = OnBadStep::kSkip, .loss_spike = 6}}) {
    BadSteps rule(options);
    EXPECT_EQ(rule.judge(kNan, 1), "the loss is nan");
    EXPECT_EQ(rule.judge(-kNan, 1), "the loss is nan");
    EXPECT_EQ(rule.judge(kInf, 1), "the loss is inf");
    EXPECT_EQ(rule.judge(2, kInf), "the gradient norm is inf");
    EXPECT_EQ(rule.judge(2, 1), "");
  }
}

TEST(BadSteps, NothingFiniteIsBadUnlessAsked) {
  BadSteps rule = after(200, {});
  EXPECT_EQ(rule.judge(1e300, 1e300), "");
}

TEST(BadSteps, ASpikeIsFarAboveTheMedianOfLate) {
  BadSteps rule = after(300, {.loss_spike = 6});
  EXPECT_EQ(rule.judge(loss_at(300) + 0.2, 1), "");
  const std::string why = rule.judge(loss_at(300) + 3, 1);
  EXPECT_NE(why.find("deviations above"), std::string::npos) << why;
  // The spike is not part of the median: the next good step is still good.
  EXPECT_EQ(rule.judge(loss_at(301), 1), "");
  EXPECT_EQ(rule.judge(0.001, 1), "") << "a loss that falls is no spike";
}

TEST(BadSteps, MoreDeviationsAllowMore) {
  for (int i = 0; i < 100; ++i) {
    const double height = 0.05 * i;
    BadSteps strict = after(100, {.loss_spike = 4}), loose = after(100, {.loss_spike = 12});
    const bool is_strict = !strict.judge(loss_at(100) + height, 1).empty();
    const bool is_loose = !loose.judge(loss_at(100) + height, 1).empty();
    EXPECT_LE(is_loose, is_strict) << height;
  }
}

TEST(BadSteps, TheGradientNormIsComparedWithItsMedian) {
  BadSteps rule = after(100, {.norm_spike = 10});
  EXPECT_EQ(rule.judge(4, 8), "");
  EXPECT_NE(rule.judge(4, 14).find("gradient norm"), std::string::npos);
}

TEST(BadSteps, EarlyStepsHaveNoSpikes) {
  BadSteps rule({.loss_spike = 6, .norm_spike = 10});
  for (std::size_t i = 0; i < BadSteps::kEnough; ++i) {
    EXPECT_EQ(rule.judge(i % 2 == 0 ? 10 : 1, i % 2 == 0 ? 100 : 0.1), "") << i;
  }
}

TEST(BadSteps, EqualLossesLeaveRoomForRounding) {
  BadSteps rule({.loss_spike = 6});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(rule.judge(2.0, 1), "");
  EXPECT_EQ(rule.judge(2.0 + 1e-6, 1), "");
  EXPECT_NE(rule.judge(2.1, 1), "");
}

TEST(BadSteps, SkippingEndsAfterSoManyInARow) {
  BadSteps rule({.action = OnBadStep::kSkip, .most_in_a_row = 3});
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 3; ++i) {
      const auto action = rule.act(rule.judge(kNan, 1));
      ASSERT_TRUE(action);
      EXPECT_EQ(*action, OnBadStep::kSkip);
    }
    if (round < 3) {
      EXPECT_EQ(rule.judge(1, 1), "");  // a good step in between
    }
  }
  const auto enough = rule.act(rule.judge(kNan, 1));
  ASSERT_FALSE(enough);
  EXPECT_EQ(enough.error().message, "the loss is nan; 4 bad steps in a row; --max-bad-steps is 3");
}

TEST(BadSteps, RollbacksAreCountedForGood) {
  BadSteps rule({.action = OnBadStep::kRollback, .most_rollbacks = 2});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(*rule.act(rule.judge(kInf, 1)), OnBadStep::kRollback);
    EXPECT_EQ(rule.judge(1, 1), "");
  }
  EXPECT_FALSE(rule.act(rule.judge(kInf, 1)));
}

}  // namespace
}  // namespace copus
