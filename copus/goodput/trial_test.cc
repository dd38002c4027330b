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

TEST(Trial, ABatchIsWorthWhatTheLawsSayOfIt) {
  // From 10 to 30 at three times the samples/s: the first law says that samples are worth 11/31 of
  // what they were, the second 1010/1030.
  const std::vector<WeightedLaw> laws = {{0.25, {.calibration = 1}}, {0.75, {.calibration = 1000}}};
  const auto [worth, log_sd] = worth_of_batch_try(laws, 1, 10, 30, 2.5);
  const double slow = 31.0 / 11 / 2.5, fast = 1030.0 / 1010 / 2.5;
  EXPECT_NEAR(worth.slowdown, 0.25 * (slow - 1), 1e-12);
  EXPECT_NEAR(worth.saving, 0.75 * (1 - fast), 1e-12);
  EXPECT_NEAR(worth.fails, 0.25, 1e-12);
  EXPECT_NEAR(log_sd, std::sqrt(0.25 * 0.75) * std::log(slow / fast), 1e-12);
}

TEST(Trial, ABatchThatAllLawsAgreeOnHasNothingToShow) {
  const std::vector<WeightedLaw> one = {{0.5, {.calibration = 3}}, {0.5, {.calibration = 3}}};
  EXPECT_NEAR(worth_of_batch_try(one, 10, 16, 32, 1.8).log_sd, 0, 1e-7);
}

}  // namespace
}  // namespace copus
