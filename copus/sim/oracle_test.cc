#include "copus/sim/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "copus/sim/sim_testing.h"

namespace copus {
namespace {

const std::vector<double> kFineLosses = {5, 4.5, 4, 3.5, 3};

Seconds slowest_step(const Scenario& scenario) {
  Seconds most;
  for (const Candidate& candidate : scenario.candidates) {
    most = max(most, scenario.world.step_time(candidate));
  }
  return most;
}

// Expects that no run reaches a loss before the oracle. Allows half a percent for the oracle's grid
// and two steps for the run's discretisation.
void expect_first(const Scenario& scenario, const std::vector<std::string>& policies,
                  std::uint64_t seeds) {
  const SimOutcome oracle = fastest_way(scenario.world, scenario.candidates, kFineLosses);
  ASSERT_EQ(oracle.crossings.size(), kFineLosses.size());
  EXPECT_NEAR(oracle.crossings.back().t / oracle.time, 1, 1e-6);
  const std::vector<Policy> all = parse_policies(policies, batches_of(scenario)).value();
  for (const Policy& policy : all) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      const SimOutcome run = simulate(scenario, policy, kFineLosses, seed).value();
      ASSERT_EQ(run.crossings.size(), kFineLosses.size()) << policy.name;
      for (std::size_t l = 0; l < kFineLosses.size(); ++l) {
        EXPECT_LE(oracle.crossings[l].t, 1.005 * run.crossings[l].t + 2 * slowest_step(scenario))
            << policy.name << " to " << kFineLosses[l] << ", seed " << seed;
      }
    }
  }
}

TEST(Oracle, NoPolicyIsFaster) {
  Scenario scenario = quiet_scenario();
  scenario.world.noise_rank = 100;
  scenario.world.step_jitter = 0.02;
  expect_first(
      scenario,
      {"static", "cbs-pessimistic", "cbs-optimistic", "copus", "copus-lr-aware", "copus-batch"}, 5);
}

TEST(Oracle, NoPolicyIsFasterOnWorkloadsOfTheCatalog) {
  for (const auto& [model, cluster] : {std::pair{"llama-3.2-3b", "1x8xH100-80GB-SXM"},
                                       std::pair{"llama-2-13b", "2x8xH100-80GB-SXM"},
                                       std::pair{"qwen-2.5-32b", "4x8xH100-80GB-SXM"}}) {
    SCOPED_TRACE(model);
    expect_first(catalog_scenario(model, cluster, {16, 64, 256, 1024}),
                 {"static:16", "static:64", "cbs-optimistic", "copus"}, 1);
  }
}

TEST(Oracle, WithOneCandidateIsTheStaticRun) {
  const Scenario scenario = quiet_scenario();
  for (const Candidate& candidate : scenario.candidates) {
    const SimOutcome run = fastest_way(scenario.world, {candidate}, kFineLosses);
    EXPECT_EQ(run.switches, 0);
    ASSERT_EQ(run.phases.size(), 1U);
    const auto batch = static_cast<double>(candidate.at.global_batch);
    for (const SimPoint& crossing : run.crossings) {
      const double steps = ideal_steps(scenario.world, batch, crossing.loss);
      EXPECT_NEAR(steps * scenario.world.step_time(candidate) / crossing.t, 1, 1e-3);
      EXPECT_NEAR(crossing.samples, steps * batch, 1e-3 * crossing.samples);
    }
  }
}

TEST(Oracle, NeverMovesWhereAMoveTakesForever) {
  const Scenario scenario = quiet_scenario(Seconds(std::numeric_limits<double>::infinity()));
  const SimOutcome run = fastest_way(scenario.world, scenario.candidates, kFineLosses);
  EXPECT_EQ(run.layout_switches, 0);
  EXPECT_GT(run.switches, 0);  // of the batch alone
  EXPECT_TRUE(std::isfinite(run.time.v));
  for (const SimPhase& phase : run.phases) {
    EXPECT_TRUE(same_placement(phase.at.plan, run.phases.front().at.plan));
  }
  const SimOutcome freer = fastest_way(quiet_scenario().world, scenario.candidates, kFineLosses);
  EXPECT_GT(run.time, freer.time);
}

TEST(Oracle, WithFreeSwitchesIsTheBestAtEveryPoint) {
  Scenario scenario = quiet_scenario(Seconds());
  scenario.world.in_place_pause = Seconds();
  const World& world = scenario.world;
  const SimOutcome run = fastest_way(world, scenario.candidates, kFineLosses);
  for (std::size_t l = 0; l < kFineLosses.size(); ++l) {
    const double least = integral_to(world.curve, kFineLosses[l], [&](double critical) {
      double best = std::numeric_limits<double>::infinity();
      for (const Candidate& candidate : scenario.candidates) {
        const auto batch = static_cast<double>(candidate.at.global_batch);
        best = std::min(best, world.step_time(candidate).v / world.law.step(batch, critical));
      }
      return best;
    });
    EXPECT_NEAR(run.crossings[l].t.v, least, 1e-3 * least) << kFineLosses[l];
  }
  EXPECT_EQ(run.pause, Seconds());
}

TEST(Oracle, BeginsWhereEveryRunBegins) {
  World world = quiet_scenario().world;
  for (int i = 0; i < 50; ++i) {
    world.curve.start_loss = 6 + 0.0371 * i;
    world.curve.floor = 1.9 + 0.0013 * i;
    const SimOutcome run = fastest_way(world, quiet_scenario().candidates, kFineLosses);
    EXPECT_EQ(run.points.front().loss, world.curve.start_loss);
    EXPECT_EQ(run.points.back().loss, kFineLosses.back());
    EXPECT_EQ(run.crossings.size(), kFineLosses.size());
  }
}

TEST(Oracle, ItsTimeIsItsPhasesAndItsPauses) {
  const Scenario scenario = quiet_scenario();
  const SimOutcome run = fastest_way(scenario.world, scenario.candidates, kFineLosses);
  EXPECT_EQ(static_cast<std::int64_t>(run.phases.size()), run.switches + 1);
  std::int64_t layouts = 0;
  for (std::size_t i = 1; i < run.phases.size(); ++i) {
    EXPECT_GT(run.phases[i].begin, run.phases[i - 1].begin);
    EXPECT_NE(run.phases[i].at, run.phases[i - 1].at);
    if (!same_placement(run.phases[i].at.plan, run.phases[i - 1].at.plan)) ++layouts;
  }
  EXPECT_EQ(run.layout_switches, layouts);
  const double pauses =
      20.0 * static_cast<double>(layouts) +
      scenario.world.in_place_pause.v * static_cast<double>(run.switches - layouts);
  EXPECT_NEAR(run.pause.v, pauses, 1e-9);
}

}  // namespace
}  // namespace copus
