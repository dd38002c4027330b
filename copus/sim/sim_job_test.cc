#include "copus/sim/sim_job.h"

#include <gtest/gtest.h>

#include <cmath>

#include "copus/sim/sim_testing.h"

namespace copus {
namespace {

// A quiet scenario whose results are known by calculation.
class ByHand : public testing::Test {
 protected:
  SimJob job(std::vector<double> losses = {4, 3}, std::uint64_t seed = 1) {
    return {scenario_.world,
            {.losses = std::move(losses), .seed = seed},
            at(0),
            [this](const Configuration& to) -> const Candidate& { return find(to); }};
  }
  const Candidate& at(std::size_t i) const { return scenario_.candidates[i]; }
  const Candidate& find(const Configuration& to) const {
    return *std::find_if(scenario_.candidates.begin(), scenario_.candidates.end(),
                         [&](const Candidate& candidate) { return candidate.at == to; });
  }
  SimOutcome outcome(const std::string& policy, std::uint64_t seed = 1) const {
    return run_of(scenario_, policy, {5, 4, 3}, seed);
  }

  Scenario scenario_ = quiet_scenario();
};

TEST_F(ByHand, TimeSamplesAndPausesAddUpOverSwitches) {
  SimJob run = job();
  std::int64_t samples = 0, layouts = 0, switches = 0;
  Seconds time, pauses;
  Configuration now = at(0).at;
  for (std::size_t i = 0; i < scenario_.candidates.size(); ++i) {
    if (i > 0) {
      const bool stays = same_placement(now.plan, at(i).at.plan);
      now = at(i).at;
      const MoveReport moved = run.move(now).value();
      EXPECT_TRUE(moved.done);
      EXPECT_EQ(moved.pause, stays ? scenario_.world.in_place_pause : Seconds(20));
      pauses += moved.pause;
      layouts += stays ? 0 : 1;
      ++switches;
    }
    for (int step = 0; step < 7; ++step) {
      const StepReport report = run.step().value();
      samples += now.global_batch;
      time += scenario_.world.step_time(at(i));
      EXPECT_EQ(report.samples, samples);
      EXPECT_NEAR(report.time.v, scenario_.world.step_time(at(i)).v, 1e-9);
    }
  }
  const SimOutcome& out = run.outcome();
  EXPECT_EQ(out.samples, samples);
  EXPECT_EQ(out.switches, switches);
  EXPECT_EQ(out.layout_switches, layouts);
  EXPECT_NEAR(out.pause.v, pauses.v, 1e-9);
  EXPECT_NEAR(out.time.v, (time + pauses).v, 1e-6);
  EXPECT_EQ(out.phases.size(), scenario_.candidates.size());
  EXPECT_EQ(out.phases.back().at, now);
}

TEST_F(ByHand, AStaticRunTakesTheIntegral) {
  for (const std::int64_t batch : batches_of(scenario_)) {
    const SimOutcome run = outcome(fmt::format("static:{}", batch));
    ASSERT_EQ(run.crossings.size(), 3U);
    const Seconds step_time = run.time / static_cast<double>(run.steps);
    for (const SimPoint& crossing : run.crossings) {
      const auto b = static_cast<double>(batch);
      const World& world = scenario_.world;
      const auto worth = [&](double loss) {
        return world.law.step(b, world.curve.critical_batch(loss));
      };
      // The crossing is the first step at or below the loss, so it is up to one step late.
      const double euler = 0.5 * std::log(worth(world.curve.start_loss) / worth(crossing.loss));
      EXPECT_NEAR(crossing.t / step_time, ideal_steps(world, b, crossing.loss), 1 + euler)
          << batch << " to " << crossing.loss;
      EXPECT_NEAR(crossing.samples, crossing.t / step_time * b, 1e-3);
    }
  }
}

TEST_F(ByHand, CrossingsAreAtOrJustBelowTheirLosses) {
  const SimOutcome run = outcome("copus");
  const std::vector<double> losses = {5, 4, 3};
  ASSERT_EQ(run.crossings.size(), losses.size());
  for (std::size_t l = 0; l < losses.size(); ++l) {
    EXPECT_LE(run.crossings[l].loss, losses[l]);
    EXPECT_GT(run.crossings[l].loss, losses[l] - 0.01);
  }
  EXPECT_EQ(run.crossings.back().t, run.time);
  for (std::size_t i = 1; i < run.points.size(); ++i) {
    EXPECT_GT(run.points[i].t, run.points[i - 1].t);
    EXPECT_LT(run.points[i].loss, run.points[i - 1].loss);
  }
}

TEST_F(ByHand, TheSameSeedIsTheSameRun) {
  scenario_.world.noise_rank = 100;
  scenario_.world.step_jitter = 0.05;
  scenario_.world.failures = {Seconds(5000), Seconds(300), Seconds(1), Seconds(60)};
  const SimOutcome first = outcome("copus", 1), again = outcome("copus", 1),
                   other = outcome("copus", 2);
  EXPECT_EQ(first.time, again.time);
  EXPECT_EQ(first.steps, again.steps);
  EXPECT_EQ(first.switches, again.switches);
  EXPECT_EQ(first.failures, again.failures);
  EXPECT_NE(first.time, other.time);
}

TEST_F(ByHand, StepTimesScatterAboutTheTruth) {
  const Seconds quiet = outcome("static:64").time;
  scenario_.world.step_jitter = 0.1;
  const Seconds noisy = outcome("static:64").time;
  EXPECT_NE(noisy, quiet);
  EXPECT_NEAR(noisy / quiet, 1, 0.01);
}

TEST_F(ByHand, WhatFailuresLoseIsWhatARunTakesLonger) {
  const SimOutcome quiet = outcome("static:64");
  scenario_.world.failures = {Seconds(3000), Seconds(300), Seconds(2), Seconds(100)};
  const SimOutcome run = outcome("static:64");
  EXPECT_TRUE(run.reached);
  EXPECT_GT(run.failures, 0);
  EXPECT_GT(run.time, quiet.time);
  EXPECT_NEAR((run.time - run.lost) / quiet.time, 1, 1e-6);
  EXPECT_EQ(run.steps, quiet.steps);
  EXPECT_EQ(run.samples, quiet.samples);
}

TEST_F(ByHand, AFailureCostsARestartAndHalfACheckpointInterval) {
  scenario_.world.failures = {
      .between = Seconds(1000), .checkpoint_every = Seconds(100), .restart = Seconds(40)};
  double failures = 0;
  Seconds lost, time;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const SimOutcome run = outcome("static:64", seed);
    EXPECT_TRUE(run.reached);
    failures += static_cast<double>(run.failures);
    lost += run.lost;
    time += run.time;
  }
  ASSERT_GT(failures, 100);
  EXPECT_NEAR(lost.v / failures, 100.0 / 2 + 40, 8);
  // Without the time of restarts, failures come once per 1,000 s.
  EXPECT_NEAR((time.v - 40 * failures) / failures / 1000, 1, 4 / std::sqrt(failures));
}

TEST_F(ByHand, CheckpointsAloneCostWhatTheyHoldUp) {
  const Seconds quiet = outcome("static:64").time;
  scenario_.world.failures = {Seconds(1e12), Seconds(100), Seconds(5), Seconds()};
  const SimOutcome run = outcome("static:64");
  EXPECT_EQ(run.failures, 0);
  EXPECT_NEAR(run.time / (quiet + run.lost), 1, 1e-6);
  EXPECT_NEAR(run.lost / quiet, 0.05, 0.003);
}

// Each failure takes the run back to the beginning.
TEST_F(ByHand, ARunThatNeverGetsToACheckpointIsGivenUp) {
  scenario_.world.failures = {.between = Seconds(20), .checkpoint_every = Seconds(1e6)};
  SimJob run(scenario_.world, {.losses = {3}, .most_steps = 5000}, at(0), nullptr);
  for (int step = 0; step < 5000; ++step) {
    ASSERT_FALSE(run.done());
    ASSERT_TRUE(run.step().has_value());
  }
  EXPECT_TRUE(run.done());
  EXPECT_FALSE(run.outcome().reached);
  EXPECT_TRUE(run.outcome().crossings.empty());
}

}  // namespace
}  // namespace copus
