#include "copus/goodput/step_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace copus {
namespace {

using Int = std::int64_t;

// A layout and a batch with the parts of its predicted step, in seconds.
struct Parts {
  double compute = 0, tp = 0, pipeline = 0, dp = 0, overhead = 0;
};
Candidate candidate(Int dp, Int tp, Int pp, Int batch, Parts parts) {
  Candidate made;
  made.at.plan.dp = dp;
  made.at.plan.tp = tp;
  made.at.plan.pp = pp;
  made.at.global_batch = batch;
  made.predicted.compute = Seconds(parts.compute);
  made.predicted.tp = Seconds(parts.tp);
  made.predicted.pipeline = Seconds(parts.pipeline);
  made.predicted.dp = Seconds(parts.dp);
  made.predicted.overhead = Seconds(parts.overhead);
  return made;
}

// Compute grows with the batch, the gradient reduction does not, the bubble does not.
Candidate data_parallel_step(Int batch) {
  const double work = static_cast<double>(batch) / 64;
  return candidate(8, 1, 1, batch, {.compute = work, .dp = 0.3, .overhead = 0.01});
}
Candidate pipelined_step(Int batch) {
  const double work = static_cast<double>(batch) / 64;
  return candidate(2, 1, 4, batch,
                   {.compute = work, .pipeline = 0.2, .dp = 0.05, .overhead = 0.01});
}
Candidate tensor_parallel_step(Int batch) {
  const double work = static_cast<double>(batch) / 64;
  return candidate(1, 8, 1, batch, {.compute = work, .tp = 2 * work, .overhead = 0.01});
}

Seconds predicted(const Candidate& at) { return at.predicted.total(); }

void observe(StepTimes& times, const Candidate& at, Seconds time, int steps = 30) {
  for (int i = 0; i < steps; ++i) times.observe(at, time);
}

TEST(StepTimes, BelieveThePredictionBeforeAnyStep) {
  const StepTimes times;
  EXPECT_EQ(times.believe(pipelined_step(16)).time, predicted(pipelined_step(16)));
  EXPECT_GT(times.believe(pipelined_step(16)).log_sd, 0.1);
}

TEST(StepTimes, BelieveWhatIsMeasured) {
  StepTimes times;
  const Candidate here = pipelined_step(16);
  observe(times, here, 1.5 * predicted(here));
  EXPECT_NEAR(times.believe(here).time / predicted(here), 1.5, 0.03);
  EXPECT_LT(times.believe(here).log_sd, 0.03);
}

TEST(StepTimes, AnotherBatchOfTheLayoutFollows) {
  StepTimes times;
  const Candidate here = pipelined_step(16), there = pipelined_step(32);
  observe(times, here, 1.5 * predicted(here));
  EXPECT_NEAR(times.believe(there).time / predicted(there), 1.5, 0.1);
  EXPECT_GT(times.believe(there).log_sd, times.believe(here).log_sd);
  EXPECT_LT(times.believe(there).log_sd, StepTimes().believe(there).log_sd / 2);
}

TEST(StepTimes, AMachineThatIsSlowThroughoutSaysNothingOfItsLayouts) {
  const Candidate here = data_parallel_step(256);
  for (const double factor : {0.1, 0.5, 2.0, 3.0, 10.0, 50.0}) {
    StepTimes times;
    observe(times, here, factor * predicted(here));
    for (const Candidate& there : {tensor_parallel_step(256), pipelined_step(256)}) {
      const StepTimeRatio ratio = times.ratio(there, here);
      EXPECT_NEAR(ratio.log_mean, std::log(predicted(there) / predicted(here)), 0.02) << factor;
      EXPECT_GT(ratio.log_sd, 0.1) << "and they stay as uncertain as they were";
    }
  }
}

TEST(StepTimes, PredictionsFiftyTimesOffAreRecoveredFrom) {
  const Candidate here = data_parallel_step(64), there = pipelined_step(64);
  StepTimes times;
  observe(times, here, 50 * predicted(here));
  observe(times, there, 0.02 * predicted(there));
  EXPECT_NEAR(times.believe(here).time / predicted(here), 50, 3);
  EXPECT_NEAR(times.believe(there).time / predicted(there), 0.02, 0.001);
  EXPECT_NEAR(times.ratio(here, there).log_mean,
              std::log(2500 * predicted(here) / predicted(there)), 0.1);
}

TEST(StepTimes, TheSpreadOfLayoutsIsThatOfWhatIsLeftOver) {
  // Twelve layouts with the same parts, so that all that differs is their own.
  std::mt19937_64 random(11);
  std::normal_distribution<double> unit;
  double last = 0;
  for (const double sd : {0.02, 0.1, 0.4}) {
    StepTimes times;
    const Parts parts{.compute = 1, .tp = 0.1, .pipeline = 0.1, .dp = 0.1, .overhead = 0.01};
    for (Int dp = 1; dp <= 12; ++dp) {
      const Candidate at = candidate(dp, 1, 1, 64, parts);
      observe(times, at, std::exp(sd * unit(random)) * predicted(at));
    }
    const double believed =
        times.ratio(candidate(13, 1, 1, 64, parts), candidate(1, 1, 1, 64, parts)).log_sd;
    EXPECT_GT(believed, 0.5 * sd);
    EXPECT_LT(believed, 3 * sd + 0.05);
    EXPECT_GT(believed, last);
    last = believed;
  }
}

TEST(StepTimes, WhatWasMeasuredIsRestored) {
  const Candidate here = pipelined_step(16), gone = tensor_parallel_step(16);
  StepTimes times;
  observe(times, here, 1.5 * predicted(here), 40);
  observe(times, gone, 2 * predicted(gone), 5);
  StepTimes restored;
  const std::vector<Candidate> all = {here, gone, data_parallel_step(16)};
  ASSERT_TRUE(restored.restore(times.to_json(), "times", all));
  EXPECT_EQ(restored.to_json(), times.to_json());
  EXPECT_DOUBLE_EQ(restored.believe(all[2]).time.v, times.believe(all[2]).time.v);
  StepTimes without;
  ASSERT_TRUE(without.restore(times.to_json(), "times", {here}));
  EXPECT_EQ(without.measured_steps(here.at), 40);
  EXPECT_EQ(without.measured_steps(gone.at), 0);
}

TEST(StepTimes, WhatNoRunHasWrittenIsRefused) {
  const std::vector<Candidate> all = {pipelined_step(16)};
  StepTimes times;
  observe(times, all[0], predicted(all[0]));
  const Json good = times.to_json();
  for (const char* text : {"{}", "[1]", R"([{"at": "x"}])", "\"x\""}) {
    EXPECT_FALSE(times.restore(*parse_json(text, "test"), "times", all)) << text;
  }
  for (const auto& [field, value] : std::vector<std::pair<const char*, Json>>{
           {"steps", 0}, {"recent_s", Json::array()}, {"recent_s", {-1}}, {"recent_s", {"x"}}}) {
    Json damaged = good;
    damaged[0][field] = value;
    EXPECT_FALSE(times.restore(damaged, "times", all)) << field << " " << value;
  }
  EXPECT_EQ(times.to_json(), good);
}

TEST(StepTimes, LearnAMachineWhoseReductionsAreSlow) {
  // On this machine the gradient reduction takes three times what was predicted.
  auto truth = [](const Candidate& at) { return predicted(at) + 2 * at.predicted.dp; };
  StepTimes times;
  const Candidate third = candidate(4, 1, 2, 64, {.compute = 1, .pipeline = 0.1, .dp = 0.2});
  const double error_before = std::abs(predicted(third) / truth(third) - 1);
  for (const Int batch : {16, 128})
    observe(times, data_parallel_step(batch), truth(data_parallel_step(batch)));
  EXPECT_GT(error_before, 0.2);
  EXPECT_NEAR(times.believe(third).time / truth(third), 1, 0.06);
  EXPECT_NEAR(times.believe(data_parallel_step(64)).time / truth(data_parallel_step(64)), 1, 0.04);
}

TEST(StepTimes, AnOutlierDoesNotMoveIt) {
  StepTimes times;
  const Candidate here = pipelined_step(16);
  observe(times, here, predicted(here), 10);
  const Seconds before = times.believe(here).time;
  times.observe(here, 50 * predicted(here));
  EXPECT_NEAR(times.believe(here).time / before, 1, 1e-3);
}

TEST(StepTimes, OldStepsAreForgotten) {
  StepTimes times;
  const Candidate here = pipelined_step(16);
  observe(times, here, predicted(here), 100);
  observe(times, here, 2 * predicted(here), 30);
  EXPECT_NEAR(times.believe(here).time / predicted(here), 2, 0.1);
}

TEST(StepTimes, SpreadShrinksWithSteps) {
  StepTimes times;
  const Candidate here = pipelined_step(16);
  double last = times.believe(here).log_sd;
  for (int step = 0; step < 30; ++step) {
    times.observe(here, predicted(here));
    const double sd = times.believe(here).log_sd;
    EXPECT_LT(sd, last);
    last = sd;
  }
}

TEST(StepTimes, OrderOfObservationDoesNotMatter) {
  const std::vector<Candidate> places = {data_parallel_step(16), data_parallel_step(64),
                                         pipelined_step(16), tensor_parallel_step(32)};
  struct Step {
    std::size_t place;
    Seconds time;
  };
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(1.3, 0.1);
  std::vector<Step> steps;
  for (std::size_t i = 0; i < 80; ++i) {
    steps.push_back({i % places.size(), noise(random) * predicted(places[i % places.size()])});
  }
  auto believed = [&] {
    StepTimes times;
    for (const Step& step : steps) times.observe(places[step.place], step.time);
    return times.believe(pipelined_step(128));
  };
  const StepTime first = believed();
  for (int round = 0; round < 10; ++round) {
    std::shuffle(steps.begin(), steps.end(), random);
    EXPECT_DOUBLE_EQ(believed().time.v, first.time.v);
    EXPECT_DOUBLE_EQ(believed().log_sd, first.log_sd);
  }
}

TEST(StepTimes, AllBeliefsAreFiniteWhateverWasMeasured) {
  StepTimes times;
  observe(times, pipelined_step(32), Seconds(0));
  observe(times, pipelined_step(16), microseconds(1));
  observe(times, data_parallel_step(16), 1e6 * predicted(data_parallel_step(16)));
  for (const Candidate& at : {pipelined_step(16), pipelined_step(4096), data_parallel_step(256),
                              tensor_parallel_step(8), tensor_parallel_step(4096)}) {
    EXPECT_GT(times.believe(at).time, Seconds());
    EXPECT_TRUE(std::isfinite(times.believe(at).time.v));
    EXPECT_TRUE(std::isfinite(times.believe(at).log_sd));
    EXPECT_TRUE(std::isfinite(times.ratio(at, pipelined_step(64)).log_mean));
  }
}

TEST(StepTimes, WhatTwoShareCancelsInTheirRatio) {
  StepTimes times;
  const Candidate here = pipelined_step(64), there = pipelined_step(128),
                  apart = tensor_parallel_step(128);
  EXPECT_DOUBLE_EQ(times.ratio(here, here).log_sd, 0);
  // Before any measurement each step time is uncertain, and their ratio is much less so.
  EXPECT_LT(times.ratio(here, there).log_sd, 0.5 * times.believe(there).log_sd);
  EXPECT_NEAR(times.ratio(here, there).log_sd, times.ratio(there, here).log_sd, 1e-12);
  EXPECT_GT(times.ratio(here, apart).log_sd, 2 * times.ratio(here, there).log_sd);
  for (const Candidate& at : {here, there}) observe(times, at, predicted(at));
  EXPECT_LT(times.ratio(here, there).log_sd, 0.04);
}

TEST(StepTimes, ALayoutIsAsUncertainOnAMachineThatIsSlowThroughout) {
  const Candidate here = data_parallel_step(64), there = pipelined_step(64);
  StepTimes as_predicted, slow;
  observe(as_predicted, here, predicted(here));
  observe(slow, here, 10 * predicted(here));
  EXPECT_GT(slow.ratio(there, here).log_sd, 0.5 * as_predicted.ratio(there, here).log_sd);
}

}  // namespace
}  // namespace copus
