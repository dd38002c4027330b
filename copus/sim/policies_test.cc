#include "copus/sim/policies.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "copus/sim/sim_testing.h"

namespace copus {
namespace {

std::vector<std::string> names_of(const std::vector<Policy>& policies) {
  std::vector<std::string> names;
  names.reserve(policies.size());
  for (const Policy& policy : policies) names.push_back(policy.name);
  return names;
}

std::string error_of(const std::string& name) {
  const auto parsed = parse_policies({"copus", name}, {16, 32});
  return parsed ? "" : parsed.error().message;
}

TEST(ParsePolicies, StaticIsOneForEachBatch) {
  const std::vector<Policy> all =
      parse_policies({"static:32", "static", "copus", "copus"}, {16, 32}).value();
  EXPECT_EQ(names_of(all), (std::vector<std::string>{"static:32", "static:16", "copus"}));
  EXPECT_EQ(all[0].batch, 32);
  EXPECT_TRUE(all[0].baseline());
  EXPECT_FALSE(all[2].baseline());
}

TEST(ParsePolicies, TheDefaultsAreThere) {
  const std::vector<Policy> all = parse_policies(default_policies(), {16, 32}).value();
  EXPECT_EQ(all.size(), default_policies().size() + 1);  // two batches
}

TEST(ParsePolicies, TakesEveryNameThatIsListedAndNamesAllInItsError) {
  for (const std::string& name : policy_names()) {
    EXPECT_NE(error_of("pollux").find(name), std::string::npos) << name;
    if (name == "static:BATCH") continue;
    EXPECT_EQ(error_of(name), "");
  }
}

TEST(ParsePolicies, ALiveRunComparesNoPolicyThatOnlyASimulationHas) {
  EXPECT_EQ(default_live_policies(),
            (std::vector<std::string>{"static", "cbs-pessimistic", "cbs-optimistic", "copus",
                                      "copus-2026"}));
}

TEST(ParsePolicies, ErrorsNameTheValueAndWhatWouldBeRight) {
  EXPECT_EQ(error_of("static:100"),
            "--policies: got static:100; want a batch of the ladder: 16, 32");
  EXPECT_NE(error_of("static:x").find("got \"x\""), std::string::npos) << error_of("static:x");
  EXPECT_NE(error_of("static:").find("--policies: static"), std::string::npos);
  const std::string unknown = error_of("pollux");
  EXPECT_NE(unknown.find("--policies: got pollux; want static, "), std::string::npos) << unknown;
  EXPECT_NE(unknown.find(" or oracle"), std::string::npos) << unknown;
}

// Return the loss and the configuration of a run at a time.
double loss_at(const SimOutcome& run, Seconds t) {
  const auto after = std::find_if(run.points.begin(), run.points.end(),
                                  [&](const SimPoint& point) { return point.t > t; });
  return after == run.points.begin() ? after->loss : std::prev(after)->loss;
}
const Configuration& place_at(const SimOutcome& run, Seconds t) {
  const auto after = std::find_if(run.phases.begin(), run.phases.end(),
                                  [&](const SimPhase& phase) { return phase.begin > t; });
  return std::prev(after)->at;
}

const Candidate& fastest_at(const Scenario& scenario, std::int64_t batch) {
  const auto slower = [&](const Candidate& a, const Candidate& b) {
    const auto rank = [&](const Candidate& candidate) {
      return std::pair(candidate.at.global_batch != batch, scenario.world.step_time(candidate));
    };
    return rank(a) < rank(b);
  };
  return *std::min_element(scenario.candidates.begin(), scenario.candidates.end(), slower);
}

TEST(Static, StaysInTheFastestLayoutOfItsBatch) {
  const Scenario scenario = quiet_scenario();
  for (const std::int64_t batch : batches_of(scenario)) {
    const SimOutcome run = run_of(scenario, fmt::format("static:{}", batch), kLosses);
    EXPECT_EQ(run.switches, 0);
    ASSERT_EQ(run.phases.size(), 1U);
    EXPECT_EQ(run.phases[0].at, fastest_at(scenario, batch).at);
  }
}

TEST(Cbs, KeepsOneLayoutAndItsBatchBelowTheCriticalOne) {
  const Scenario scenario = quiet_scenario();
  const LossCurve& curve = scenario.world.curve;
  const std::int64_t last_batch = 512;  // the largest candidate below the critical batch, 535
  for (const auto& [name, batch] :
       {std::pair{"cbs-pessimistic", std::int64_t{16}}, std::pair{"cbs-optimistic", last_batch}}) {
    const SimOutcome run = run_of(scenario, name, kLosses);
    ASSERT_TRUE(run.reached) << name;
    EXPECT_EQ(run.layout_switches, 0) << name;
    EXPECT_TRUE(same_placement(run.phases.front().at.plan, fastest_at(scenario, batch).at.plan))
        << name;
    for (const SimPhase& phase : run.phases) {
      const double critical = curve.critical_batch(loss_at(run, phase.begin));
      EXPECT_LE(phase.at.global_batch, std::max(16.0, 1.02 * critical)) << name;
    }
    // The batch follows the critical batch: in the end there are candidates of 256 and of 512.
    EXPECT_GE(run.phases.back().at.global_batch, 256) << name;
    EXPECT_GE(run.switches, 4) << name;
  }
}

// The layout that is predicted to be the fastest at the first batch takes three times as long.
TEST(Copus2026, KnowsTheTrueStepTimesAndTriesNothing) {
  Scenario scenario = quiet_scenario();
  const Configuration predicted = fastest_at(scenario, 16).at;
  scenario.world.step_time = [predicted](const Candidate& at) {
    return (same_placement(at.at.plan, predicted.plan) ? 3 : 1) * at.predicted.total();
  };
  const SimOutcome run = run_of(scenario, "copus-2026", kLosses);
  ASSERT_TRUE(run.reached);
  for (const SimPhase& phase : run.phases) {
    EXPECT_FALSE(same_placement(phase.at.plan, predicted.plan)) << to_text(phase.at);
  }
  const SimOutcome ours = run_of(scenario, "copus", kLosses);
  EXPECT_EQ(ours.phases.front().at, predicted) << "which has only the prediction to begin with";
  EXPECT_FALSE(same_placement(ours.phases.back().at.plan, predicted.plan));
}

TEST(Copus, WithNoBarsAndNoNoiseIsWhereGoodputIsMost) {
  for (const GoodputKind kind : {GoodputKind::kPlain, GoodputKind::kLrAware}) {
    Scenario scenario = quiet_scenario(Seconds());
    scenario.world.in_place_pause = scenario.controller.in_place_pause = Seconds();
    PolicyOptions& policy = scenario.controller.policy;
    policy.kind = kind;
    policy.margin = policy.batch_margin = 0;
    policy.caution = policy.noise_caution = 0;
    policy.dwell_steps = 0;
    policy.growth = 1e6;
    scenario.controller.noise.window_steps = 1;
    scenario.controller.decide_every = 1;
    scenario.controller.probe = 0;
    const SimOutcome run = run_of(scenario, "copus", kLosses);
    ASSERT_TRUE(run.reached);
    if (kind == GoodputKind::kPlain) {
      EXPECT_GT(run.layout_switches, 0);
    }
    for (const SimPoint& point : run.points) {
      if (point.loss > 7.5) continue;  // the first few steps have no noise scale yet
      const double critical = scenario.world.curve.critical_batch(point.loss);
      const auto goodput_of = [&](const Configuration& at) {
        const auto found = std::find_if(scenario.candidates.begin(), scenario.candidates.end(),
                                        [&](const Candidate& c) { return c.at == at; });
        const auto batch = static_cast<double>(at.global_batch);
        return goodput(kind, batch / scenario.world.step_time(*found).v, batch, critical);
      };
      double most = 0;
      for (const Candidate& candidate : scenario.candidates) {
        most = std::max(most, goodput_of(candidate.at));
      }
      EXPECT_GT(goodput_of(place_at(run, point.t)), 0.99 * most) << "loss " << point.loss;
    }
  }
}

TEST(Copus, FreeSwitchesTakeNoTimeAndABatchAloneMovesNoLayout) {
  const Scenario scenario = quiet_scenario();
  const SimOutcome free = run_of(scenario, "copus-free-switch", kLosses);
  EXPECT_GT(free.switches, 0);
  EXPECT_EQ(free.pause, Seconds());
  const SimOutcome batch = run_of(scenario, "copus-batch", kLosses);
  EXPECT_GT(batch.switches, 0);
  EXPECT_EQ(batch.layout_switches, 0);
}

TEST(Copus, IsAtLeastAsFastAsWhereItBegan) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    Scenario scenario = quiet_scenario();
    scenario.world.noise_rank = 100;
    const Seconds began = run_of(scenario, "static:16", kLosses, seed).time;
    EXPECT_LT(run_of(scenario, "copus", kLosses, seed).time, began);
  }
}

// A run that does not look at its losses is the same however noisy they are; one that learns from
// them is not.
TEST(Copus, OnlyARunThatLearnsLooksAtItsLosses) {
  Scenario quiet = quiet_scenario(), noisy = quiet_scenario();
  quiet.world.noise_rank = noisy.world.noise_rank = 100;
  quiet.world.loss_noise = 0;
  noisy.world.loss_noise = 2;
  EXPECT_EQ(run_of(quiet, "copus", kLosses).time, run_of(noisy, "copus", kLosses).time);
  quiet.controller.calibration = noisy.controller.calibration =
      CalibrationPrior{.kind = GoodputKind::kPlain};
  EXPECT_NE(run_of(quiet, "copus", kLosses).time, run_of(noisy, "copus", kLosses).time);
}

TEST(Copus, LearningHurtsLessThanAWrongCalibration) {
  Scenario scenario = quiet_scenario();
  scenario.world.noise_rank = 100;
  scenario.world.loss_noise = 0.4;
  scenario.world.calibration = 16;  // 2 is believed
  const auto time = [&] {
    Seconds sum;
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      sum += run_of(scenario, "copus", kLosses, seed).time;
    }
    return sum;
  };
  const Seconds fooled = time();
  scenario.controller.calibration = CalibrationPrior{.kind = GoodputKind::kPlain};
  EXPECT_LT(time(), fooled);
}

TEST(Simulate, SaysThatNoLayoutFits) {
  Scenario scenario = quiet_scenario();
  const Policy policy = policy_of(scenario, "static:512");
  std::erase_if(scenario.candidates, [](const Candidate& c) { return c.at.global_batch == 512; });
  const Result<SimOutcome> run = simulate(scenario, policy, kLosses, 1);
  ASSERT_FALSE(run.has_value());
  EXPECT_EQ(run.error().message.find("static:512: got no layout that fits"), 0U);
}

}  // namespace
}  // namespace copus
