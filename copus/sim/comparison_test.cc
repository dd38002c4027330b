#include "copus/sim/comparison.h"

#include <gtest/gtest.h>

#include <cmath>

#include "copus/sim/sim_testing.h"

namespace copus {
namespace {

const std::vector<Policy> kPolicies = parse_policies({"static", "copus"}, {16, 64}).value();

// Returns a run that reaches losses 4 and 3, or fewer, at these seconds and samples. It has paused
// for `pauses` seconds before the last crossing.
SimOutcome run(const std::vector<std::pair<double, double>>& crossings, double pauses = 0) {
  SimOutcome out;
  for (const auto& [seconds, samples] : crossings) {
    out.crossings.push_back(
        {Seconds(seconds), 4.0 - static_cast<double>(out.crossings.size()), samples, Seconds()});
  }
  if (!out.crossings.empty()) {
    out.crossings.back().pauses = Seconds(pauses);
    out.time = out.crossings.back().t;
  }
  out.pause = Seconds(pauses);
  out.reached = crossings.size() == 2;
  return out;
}

TEST(Compare, SpeedupIsOverTheBaselineThatIsFirstAtEachLoss) {
  const Comparison all = compare(
      kPolicies,
      {{run({{10, 100}, {40, 300}})}, {run({{15, 100}, {33, 300}})}, {run({{8, 90}, {30, 310}})}},
      {4, 3});
  ASSERT_EQ(all.fastest.size(), 2U);
  EXPECT_EQ(all.fastest[0].name, "static:16");
  EXPECT_EQ(all.fastest[0].time, Seconds(10));
  EXPECT_EQ(all.fastest[1].name, "static:64");
  const Speedup& copus = all.policies[2].speedup;
  EXPECT_NEAR(copus.by_loss[0], 25, 1e-9);
  EXPECT_NEAR(copus.by_loss[1], 10, 1e-9);
  EXPECT_NEAR(copus.average, 17.5, 1e-9);
  EXPECT_NEAR(copus.peak, 25, 1e-9);
  // A baseline is also compared with the fastest baseline, which can be itself.
  EXPECT_EQ(all.policies[0].speedup.by_loss[0], 0);
  EXPECT_LT(all.policies[0].speedup.by_loss[1], 0);
}

TEST(Compare, SpreadIsOverSeedsEachWithItsOwnBaseline) {
  const Comparison all = compare(kPolicies,
                                 {{run({{10, 1}}), run({{12, 1}})},
                                  {run({{11, 1}}), run({{11, 1}})},
                                  {run({{8, 1}}), run({{10, 1}})}},
                                 {4});
  const PolicyResult& copus = all.policies[2];
  EXPECT_NEAR(copus.speedup.low, 10, 1e-9);   // 11 / 10
  EXPECT_NEAR(copus.speedup.high, 25, 1e-9);  // 10 / 8
  EXPECT_NEAR(copus.speedup.average, 17.5, 1e-9);
  EXPECT_EQ(copus.reached[0].time, Seconds(9));
  EXPECT_EQ(copus.reached[0].low, Seconds(8));
  EXPECT_EQ(copus.reached[0].high, Seconds(10));
  EXPECT_EQ(all.fastest[0].time, Seconds(11));  // the smallest mean; if equal, the first
}

TEST(Compare, ThroughputEfficiencyAndPausesMultiplyToTheSpeedup) {
  const Comparison made = compare(kPolicies,
                                  {{run({{10, 100}, {40, 300}}, 1)},
                                   {run({{15, 90}, {33, 280}}, 0)},
                                   {run({{8, 90}, {30, 310}}, 4)}},
                                  {4, 3});
  Scenario scenario = quiet_scenario();
  scenario.world.noise_rank = 100;
  const std::vector<Policy> policies =
      parse_policies({"static", "cbs-optimistic", "copus", "oracle"}, batches_of(scenario)).value();
  std::vector<std::vector<SimOutcome>> runs;
  runs.reserve(policies.size());
  for (const Policy& policy : policies) {
    runs.push_back({simulate(scenario, policy, {5, 4, 3}, 1).value()});
  }
  for (const Comparison& comparison : {made, compare(policies, runs, {5, 4, 3})}) {
    for (const PolicyResult& result : comparison.policies) {
      const Speedup& speedup = result.speedup;
      for (std::size_t l = 0; l < speedup.by_loss.size(); ++l) {
        EXPECT_NEAR(speedup.throughput[l] * speedup.efficiency[l] * speedup.pauses[l],
                    1 + speedup.by_loss[l] / 100, 1e-9)
            << result.policy.name;
      }
    }
  }
}

TEST(Compare, WhoNeverGetsThereTakesForeverAndHasNoAverage) {
  const Comparison all = compare(
      kPolicies, {{run({{10, 100}, {40, 300}})}, {run({{15, 90}})}, {run({{8, 90}})}}, {4, 3});
  EXPECT_EQ(all.policies[1].reached[1].time, Seconds(INFINITY));
  EXPECT_EQ(all.policies[2].reached[1].time, Seconds(INFINITY));
  EXPECT_EQ(all.fastest[1].name, "static:16");
  const Speedup& copus = all.policies[2].speedup;
  EXPECT_NEAR(copus.by_loss[0], 25, 1e-9);
  EXPECT_TRUE(std::isnan(copus.by_loss[1]));
  EXPECT_TRUE(std::isnan(copus.average)) << "a loss that only a baseline reached must count";
  EXPECT_TRUE(std::isnan(copus.peak));
}

TEST(Compare, NobodyIsFasterWhereNobodyGetsAnywhere) {
  const Comparison all = compare(kPolicies, {{run({})}, {run({})}, {run({})}}, {4, 3});
  EXPECT_TRUE(all.fastest.empty());
  for (const PolicyResult& result : all.policies) {
    EXPECT_EQ(result.reached[0].time, Seconds(INFINITY));
    EXPECT_TRUE(std::isnan(result.speedup.average));
    EXPECT_TRUE(std::isnan(result.speedup.peak));
  }
}

// If one of two seeds does not reach the loss, there is no mean time and no mean speedup.
TEST(Compare, ASeedThatFailsIsNotLeftOutOfTheSpeedup) {
  const Comparison all = compare(kPolicies,
                                 {{run({{10, 1}}), run({{10, 1}})},
                                  {run({{12, 1}}), run({{12, 1}})},
                                  {run({{8, 1}}), run({})}},
                                 {4});
  EXPECT_TRUE(std::isnan(all.policies[2].speedup.average));
  EXPECT_EQ(all.policies[2].reached[0].time, Seconds(INFINITY));
  EXPECT_EQ(all.policies[2].reached[0].low, Seconds(8));
}

TEST(Compare, WithoutBaselinesThereIsNoSpeedup) {
  const std::vector<Policy> policies = parse_policies({"copus", "oracle"}, {16}).value();
  const Comparison all = compare(policies, {{run({{8, 1}})}, {run({{7, 1}})}}, {4});
  EXPECT_TRUE(all.fastest.empty());
  EXPECT_EQ(all.policies[0].reached[0].time, Seconds(8));
  EXPECT_TRUE(std::isnan(all.policies[0].speedup.average));
}

}  // namespace
}  // namespace copus
