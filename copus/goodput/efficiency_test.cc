#include "copus/goodput/efficiency.h"

#include <gtest/gtest.h>

#include <cmath>

#include "copus/goodput/goodput_testing.h"

namespace copus {
namespace {

TEST(StatisticalEfficiency, IsOneAtAVanishingBatchHalfAtTheCriticalAndNothingFarBeyond) {
  EXPECT_NEAR(statistical_efficiency(1e-9, 100), 1, 1e-10);
  EXPECT_DOUBLE_EQ(statistical_efficiency(100, 100), 0.5);
  EXPECT_NEAR(statistical_efficiency(1e12, 100), 0, 1e-9);
  EXPECT_EQ(statistical_efficiency(64, kInfinity), 1);
  EXPECT_EQ(statistical_efficiency(64, 0), 0);
}

TEST(StatisticalEfficiency, FallsWithTheBatchAndRisesWithTheCriticalBatch) {
  for (const double batch : {1.0, 10.0, 100.0, 1e4}) {
    for (const double critical : {1.0, 10.0, 100.0, 1e4}) {
      EXPECT_GT(statistical_efficiency(batch, critical),
                statistical_efficiency(2 * batch, critical));
      EXPECT_LT(statistical_efficiency(batch, critical),
                statistical_efficiency(batch, 2 * critical));
    }
  }
}

TEST(StatisticalEfficiency, IsThatOfStepsAndSamplesToOneLoss) {
  // McCandlish et al. 2018, eq. 2.11: (steps/least - 1)(samples/least - 1) = 1, where at one batch
  // samples = batch x steps and least samples = critical batch x least steps.
  const double critical = 300, least_steps = 1000, least_samples = critical * least_steps;
  for (const double batch : {3.0, 30.0, 300.0, 3000.0}) {
    const double samples = least_samples / statistical_efficiency(batch, critical);
    const double steps = samples / batch;
    EXPECT_NEAR((steps / least_steps - 1) * (samples / least_samples - 1), 1, 1e-9) << batch;
  }
}

// The batch with the largest Goodput if a step of batch B takes a + b*B seconds.
double best_batch(GoodputKind kind, double a, double b, double critical) {
  double best = 0, at = 0;
  for (int i = 0; i < 28'000; ++i) {
    const double batch = std::exp(i * 0.0005);  // up to 1.2e6
    const double value = goodput(kind, batch / (a + b * batch), batch, critical);
    if (value > best) {
      best = value;
      at = batch;
    }
  }
  return at;
}

TEST(Goodput, PeaksAtTheRootOfFixedOverVariableTimeTimesTheCriticalBatch) {
  for (const double a : {0.1, 1.0}) {
    for (const double b : {0.001, 0.01}) {
      for (const double critical : {20.0, 200.0, 2000.0}) {
        EXPECT_NEAR(best_batch(GoodputKind::kPlain, a, b, critical) / std::sqrt(a / b * critical),
                    1, 0.001)
            << a << ", " << b << ", " << critical;
      }
    }
  }
}

TEST(Goodput, ThatCountsTheLearningRatePeaksAtALargerBatch) {
  for (const double critical : {20.0, 200.0, 2000.0}) {
    EXPECT_GT(best_batch(GoodputKind::kLrAware, 0.1, 0.01, critical),
              1.2 * best_batch(GoodputKind::kPlain, 0.1, 0.01, critical));
  }
}

TEST(Goodput, IsThroughputWhereTheCriticalBatchIsInfinite) {
  EXPECT_EQ(goodput(GoodputKind::kPlain, 12.5, 64, kInfinity), 12.5);
  EXPECT_EQ(goodput(GoodputKind::kLrAware, 12.5, 64, kInfinity), 100);
}

TEST(Goodput, OfOneBatchRanksAsThroughputDoesInEitherKind) {
  for (const GoodputKind kind : {GoodputKind::kPlain, GoodputKind::kLrAware}) {
    EXPECT_NEAR(goodput(kind, 30, 64, 100) / goodput(kind, 20, 64, 100), 1.5, 1e-12);
  }
}

TEST(LearningRateFactor, IsTheRootOfTheBatchRatio) {
  EXPECT_EQ(learning_rate_factor(32, 32), 1);
  EXPECT_DOUBLE_EQ(learning_rate_factor(128, 32), 2);
  EXPECT_DOUBLE_EQ(learning_rate_factor(8, 32), 0.5);
  // In one jump or in two.
  EXPECT_DOUBLE_EQ(learning_rate_factor(48, 32) * learning_rate_factor(96, 48),
                   learning_rate_factor(96, 32));
}

}  // namespace
}  // namespace copus
