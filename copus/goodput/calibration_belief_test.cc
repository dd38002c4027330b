#include "copus/goodput/calibration_belief.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "copus/goodput/true_run_testing.h"

namespace copus {
namespace {

// A run that doubles its batch `doublings` times, after equal numbers of samples each.
void train(TrueRun& run, CalibrationBelief& belief, double samples, int doublings) {
  std::int64_t batch = 16;
  const double begin = run.samples;
  for (int phase = 0; phase <= doublings; ++phase, batch *= 2) {
    // Each phase is twice as long as the one before, as in runs whose noise scale grows.
    const double until = samples * (std::pow(2, phase + 1) - 1) / (std::pow(2, doublings + 1) - 1);
    while (run.samples - begin < until) belief.observe(run.step(batch));
  }
}

double width(const CalibrationBelief& belief) {
  const auto c = belief.calibration();
  return std::log(c.high / c.low);
}

TEST(CalibrationBelief, BeginsWithItsPrior) {
  const CalibrationBelief belief(CalibrationPrior{});
  const auto c = belief.calibration();
  EXPECT_NEAR(c.median, 3.3, 0.2);
  // 95% of a Student's t with four degrees of freedom lie within 2.78 scales.
  // The grid ends at 4.2 scales, which cuts the tails a little.
  EXPECT_NEAR(std::log(c.high / 3.3), 2.78 * 1.2, 0.4);
  EXPECT_NEAR(std::log(3.3 / c.low), 2.78 * 1.2, 0.4);
  double sum = 0;
  for (const WeightedLaw& each : belief.laws()) sum += each.weight;
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(CalibrationBelief, FindsTheTruthInRunsThatChangeTheirBatch) {
  std::mt19937_64 random(7);
  int covered = 0;
  std::vector<double> misses;
  constexpr int kRuns = 40;
  for (int i = 0; i < kRuns; ++i) {
    TrueRun run;
    run.random.seed(random());
    run.law.kind = i % 2 == 0 ? GoodputKind::kPlain : GoodputKind::kLrAware;
    run.law.calibration =
        std::exp(std::uniform_real_distribution(std::log(0.5), std::log(30.0))(random));
    CalibrationBelief belief({.kind = run.law.kind});
    train(run, belief, 300'000, 5);
    const auto c = belief.calibration();
    covered += c.low <= run.law.calibration && run.law.calibration <= c.high;
    misses.push_back(std::abs(std::log(c.median / run.law.calibration)));
  }
  EXPECT_GE(covered, 0.75 * kRuns);
  std::sort(misses.begin(), misses.end());
  EXPECT_LT(misses[kRuns / 2], std::log(2.5));
}

// Not in every run: where the batch stays far below the critical one, a kind with another critical
// batch explains the same losses.
TEST(CalibrationBelief, OftenTellsTheTwoKindsApart) {
  std::mt19937_64 random(8);
  double right = 0;
  constexpr int kRuns = 40;
  for (int i = 0; i < kRuns; ++i) {
    TrueRun run;
    run.random.seed(random());
    run.law.kind = i % 2 == 0 ? GoodputKind::kPlain : GoodputKind::kLrAware;
    run.law.calibration =
        std::exp(std::uniform_real_distribution(std::log(0.5), std::log(30.0))(random));
    CalibrationBelief belief(CalibrationPrior{});
    train(run, belief, 300'000, 5);
    for (const auto& [weight, law] : belief.laws()) {
      if (law.kind == run.law.kind) right += weight / kRuns;
    }
  }
  EXPECT_GT(right, 0.65);
}

// Whatever the shape of its losses: a belief that read the shape was certain of a calibration of
// 260 after a live run of one batch.
TEST(CalibrationBelief, LearnsNothingFromOneBatch) {
  TrueRun run;
  run.law.calibration = 30;
  CalibrationBelief belief({.kind = GoodputKind::kPlain});
  const auto before = belief.calibration();
  train(run, belief, 300'000, 0);
  // The calibration may have drifted meanwhile.
  EXPECT_NEAR(std::log(belief.calibration().median / before.median), 0, 0.05);
  EXPECT_LE(belief.calibration().low, before.low);
  EXPECT_GE(belief.calibration().high, 0.95 * before.high);
}

TEST(CalibrationBelief, IsLessCertainWhereLossesAreNoisier) {
  std::vector<double> widths;
  for (const double noise : {0.02, 0.4, 1.0}) {
    double sum = 0;
    int covered = 0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      TrueRun run;
      run.random.seed(seed);
      run.loss_noise = noise;
      CalibrationBelief belief({.kind = GoodputKind::kPlain});
      train(run, belief, 100'000, 4);
      sum += width(belief);
      const auto c = belief.calibration();
      covered += c.low <= run.law.calibration && run.law.calibration <= c.high;
    }
    EXPECT_GE(covered, 6) << noise;
    widths.push_back(sum);
  }
  EXPECT_LT(widths[0], 0.8 * widths[1]);
  EXPECT_LT(widths[0], 0.8 * widths[2]);
}

TEST(CalibrationBelief, OneWildLossChangesLittle) {
  TrueRun run;
  CalibrationBelief belief({.kind = GoodputKind::kPlain});
  train(run, belief, 100'000, 4);
  const auto before = belief.calibration();
  LossReport wild = run.step(256);
  wild.loss = 100;
  belief.observe(wild);
  for (int i = 0; i < 100; ++i) belief.observe(run.step(256));
  const auto after = belief.calibration();
  EXPECT_NEAR(std::log(after.median / before.median), 0, 0.5);
}

TEST(CalibrationBelief, FallsWithTheLearningRate) {
  TrueRun run;
  CalibrationBelief belief({.kind = GoodputKind::kPlain});
  train(run, belief, 50'000, 2);
  const double before = belief.calibration().median;
  LossReport step = run.step(64);
  step.learning_rate = 0.25;
  belief.observe(step);
  EXPECT_NEAR(belief.calibration().median / before, std::pow(0.25, 0.45), 0.02);
  // Nobody has measured what holds for rates near 0.
  step = run.step(64);
  step.learning_rate = 1e-6;
  belief.observe(step);
  EXPECT_NEAR(belief.calibration().median / before, std::pow(0.1, 0.45), 0.02);
}

// The loss falls by several nats during warm-up, which is neither noise nor slope.
TEST(CalibrationBelief, LeavesOutWarmUp) {
  TrueRun run;
  CalibrationBelief belief({.kind = GoodputKind::kPlain}), without({.kind = GoodputKind::kPlain});
  const auto prior = belief.calibration();
  for (int i = 0; i < 500; ++i) {
    LossReport step = run.step(i < 250 ? 16 : 64);
    step.learning_rate = (i + 1) / 500.0;
    step.loss += 5 - i / 100.0;
    belief.observe(step);
    EXPECT_EQ(belief.calibration().median, prior.median);
  }
  EXPECT_EQ(belief.changes(), 0);
  for (int i = 0; i < 100; ++i) {
    const LossReport step = run.step(64);
    belief.observe(step);
    without.observe(step);
  }
  EXPECT_NEAR(belief.to_json()["variance"].get<double>(),
              without.to_json()["variance"].get<double>(), 0.05);
}

TEST(CalibrationBelief, KeepsWhatItKnowsWhereTheLossBeginsAnew) {
  TrueRun run;
  CalibrationBelief belief({.kind = GoodputKind::kPlain});
  train(run, belief, 100'000, 4);
  const auto before = belief.calibration();
  belief.forget_losses();
  for (int i = 0; i < 50; ++i) {
    LossReport step = run.step(256);
    step.loss += 1;  // older weights
    belief.observe(step);
  }
  EXPECT_NEAR(std::log(belief.calibration().median / before.median), 0, 0.1);
}

TEST(CalibrationBelief, ContinuesAfterARestoreAsIfNothingHadHappened) {
  TrueRun run;
  CalibrationBelief whole(CalibrationPrior{});
  train(run, whole, 20'000, 3);
  CalibrationBelief restored(CalibrationPrior{});
  ASSERT_TRUE(restored.restore(Json::parse(whole.to_json().dump()), "calibration"));
  EXPECT_EQ(restored.to_json(), whole.to_json());
  for (int i = 0; i < 200; ++i) {
    const LossReport step = run.step(i < 100 ? 128 : 64);
    whole.observe(step);
    restored.observe(step);
  }
  EXPECT_EQ(restored.to_json(), whole.to_json());
}

TEST(CalibrationBelief, StartsOverWhereTheKindOfGoodputWasChanged) {
  TrueRun run;
  CalibrationBelief plain({.kind = GoodputKind::kPlain});
  train(run, plain, 20'000, 3);
  CalibrationBelief other({.kind = GoodputKind::kLrAware});
  const Json fresh = other.to_json();
  ASSERT_TRUE(other.restore(plain.to_json(), "calibration"));
  EXPECT_EQ(other.to_json(), fresh);
}

TEST(CalibrationBelief, RefusesADamagedState) {
  const Json good = CalibrationBelief(CalibrationPrior{}).to_json();
  const auto error_of = [](const Json& json) {
    return CalibrationBelief(CalibrationPrior{}).restore(json, "calibration").error().message;
  };
  Json bad = good;
  bad.erase("variance");
  EXPECT_NE(error_of(bad).find("variance"), std::string::npos);
  bad = good;
  bad["grid"].erase(0);
  EXPECT_NE(error_of(bad).find("grid"), std::string::npos);
  bad = good;
  bad["grid"][3][2] = "x";
  EXPECT_NE(error_of(bad).find("grid[3]"), std::string::npos);
}

// A change that shows more, or losses that are less noisy, need less time.
TEST(CalibrationBelief, KnowsHowLongAChangeHasToLast) {
  CalibrationBelief belief({.kind = GoodputKind::kPlain});
  EXPECT_TRUE(std::isinf(belief.length_to_show(0.1)));
  TrueRun run;
  train(run, belief, 100'000, 3);
  EXPECT_GT(belief.length_to_show(0.1), belief.length_to_show(0.3));
  TrueRun quiet;
  quiet.loss_noise = 0.1;
  CalibrationBelief quiet_belief({.kind = GoodputKind::kPlain});
  train(quiet, quiet_belief, 100'000, 3);
  EXPECT_LT(quiet_belief.length_to_show(0.1), 0.7 * belief.length_to_show(0.1));
}

}  // namespace
}  // namespace copus
