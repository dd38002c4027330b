#include "copus/goodput/trial.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace copus {
namespace {

TEST(Trial, WorthIsTheMeanOverDraws) {
  std::mt19937_64 random(3);
  for (const StepTimeRatio ratio : {StepTimeRatio{0.1, 0.08}, StepTimeRatio{-0.2, 0.3},
                                    StepTimeRatio{0.5, 0.6}, StepTimeRatio{0, 1}}) {
    std::lognormal_distribution<double> draw(ratio.log_mean, ratio.log_sd);
    constexpr int kDraws = 400'000;
    double saving = 0, slowdown = 0, fails = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = draw(random);
      saving += std::max(0.0, 1 - x) / kDraws;
      slowdown += std::max(0.0, x - 1) / kDraws;
      fails += (x > 1 ? 1.0 : 0.0) / kDraws;
    }
    const TryWorth worth = worth_of_try(ratio);
    EXPECT_NEAR(worth.saving, saving, 0.01 * saving + 2e-4);
    EXPECT_NEAR(worth.slowdown, slowdown, 0.02 * slowdown + 2e-4);
    EXPECT_NEAR(worth.fails, fails, 3e-3);
  }
}

TEST(Trial, WhatIsCertainIsWorthItsDifferenceAlone) {
  EXPECT_NEAR(worth_of_try({std::log(0.8), 0}).saving, 0.2, 1e-12);
  EXPECT_EQ(worth_of_try({std::log(0.8), 0}).fails, 0);
  EXPECT_EQ(worth_of_try({std::log(1.25), 0}).saving, 0);
  EXPECT_NEAR(worth_of_try({std::log(1.25), 0}).slowdown, 0.25, 1e-12);
}

TEST(Trial, DoubtMakesATryWorthMore) {
  double last = 0;
  for (const double sd : {0.02, 0.05, 0.1, 0.2, 0.4}) {
    const double saving = worth_of_try({0.1, sd}).saving;
    EXPECT_GT(saving, last);
    last = saving;
  }
}

TEST(Trial, AMixtureIsWorthTheMeanOfItsParts) {
  const StepTimeRatio narrow{0.2, 0.02}, wide{0.2, 0.6};
  const TryWorth all = worth_of_try(std::vector<WeightedRatio>{{0.9, narrow}, {0.1, wide}});
  EXPECT_DOUBLE_EQ(all.saving, 0.9 * worth_of_try(narrow).saving + 0.1 * worth_of_try(wide).saving);
  EXPECT_DOUBLE_EQ(all.fails, 0.9 * worth_of_try(narrow).fails + 0.1 * worth_of_try(wide).fails);
  // The tails make the try worth something; a normal distribution of the same spread would not.
  EXPECT_GT(all.saving, 10 * worth_of_try(StepTimeRatio{0.2, 0.078}).saving);
}

}  // namespace
}  // namespace copus
