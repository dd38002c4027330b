// Whole runs that do not know their critical batch: which batches the controller tries, what that
// costs, and where the run ends. There is one layout, so that only batches differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "copus/goodput/controller.h"
#include "copus/goodput/true_run_testing.h"

namespace copus {
namespace {

using Int = std::int64_t;

// A step takes as long as 16 samples, and a while per sample.
Seconds step_time(Int batch) { return Seconds(0.016 + 0.001 * static_cast<double>(batch)); }

std::vector<Candidate> ladder(Int lowest, Int highest) {
  std::vector<Candidate> all;
  for (Int batch = lowest; batch <= highest; batch *= 2) {
    Candidate candidate;
    candidate.at.plan.dp = 4;
    candidate.at.global_batch = batch;
    candidate.predicted.compute = step_time(batch);
    all.push_back(candidate);
  }
  return all;
}

struct Course {
  Int moves = 0, tries = 0;
  bool chained = false;   // a batch was tried before the run had decided about the last one
  double most_share = 0;  // of the run's time that tries had cost, at any step
  Seconds time;
  double progress = 0;
};

Course train(TrueRun run, ControllerOptions options, Seconds limit) {
  const std::vector<Candidate> candidates = ladder(16, 512);
  Controller controller(options, candidates.front(), candidates,
                        [](const auto&, const auto&) { return Seconds(0.1); });
  Course course;
  Int step = 0;
  bool trying = false;
  while (course.time < limit) {
    const auto batch = controller.now().global_batch;
    const LossReport shown = run.step(batch);
    StepReport report;
    report.step = ++step;
    report.loss = shown.loss;
    report.time = step_time(batch);
    const auto b = static_cast<double>(batch);
    const double scatter = step % 2 == 0 ? 1.002 : 0.998;
    report.norms = {{b / 4, (1 + 4 * shown.gns / b) * scatter, 4}, {b, 1 + shown.gns / b, 1}};
    course.time += report.time;
    controller.observe(report);
    if (!controller.due(step)) continue;
    const Decision decision = controller.consider(limit - course.time);
    if (decision.why.find("the try is over, and the run stays") != std::string::npos ||
        decision.why.find("back from the try") != std::string::npos) {
      EXPECT_TRUE(trying);
      trying = false;
    }
    if (trying) {
      EXPECT_EQ(decision.why, "measuring what this batch is worth");
      EXPECT_NE(controller.resume_at(), controller.now());
    }
    if (!decision.move) continue;
    ++course.moves;
    if (decision.why.find(": a try for ") != std::string::npos) {
      course.chained = course.chained || trying;
      trying = true;
      ++course.tries;
    }
    course.time += Seconds(0.1);
    controller.moved(decision, {true, "", Seconds(0.1)});
    const double cost = controller.to_json()["batch_tries_s"].get<double>();
    course.most_share = std::max(course.most_share, cost / course.time.v);
  }
  course.progress = run.progress;
  return course;
}

ControllerOptions options(double believed, bool learns) {
  ControllerOptions options;
  options.policy.kind = GoodputKind::kPlain;
  options.policy.calibration = believed;
  options.policy.margin = options.policy.batch_margin = 0.02;
  if (learns) options.calibration = CalibrationPrior{.kind = GoodputKind::kPlain};
  return options;
}

constexpr Seconds kLong(1500);

// By what tries are expected to cost; the test below bounds what they cost.
TEST(TryingBatches, StaysWithinItsBudget) {
  int tried = 0;
  for (const double truth : {0.5, 4.0, 30.0}) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      TrueRun run;
      run.law.calibration = truth;
      run.random.seed(seed);
      const Course course = train(run, options(2, true), kLong);
      tried += course.tries > 0;
      EXPECT_LE(course.most_share, 0.03) << "c = " << truth;
      EXPECT_FALSE(course.chained);
    }
  }
  EXPECT_GT(tried, 3);
}

TEST(TryingBatches, ARunThatIsToldItsCalibrationOrHasNoBudgetTriesNone) {
  EXPECT_EQ(train(TrueRun{}, options(2, false), kLong).tries, 0);
  ControllerOptions none = options(2, true);
  none.batch_probe = 0;
  EXPECT_EQ(train(TrueRun{}, none, kLong).tries, 0);
}

// Against the same run without tries, which learns from the moves of the policy alone.
TEST(TryingBatches, CostsLittleWhereThereIsNothingToFind) {
  ControllerOptions none = options(2, true);
  none.batch_probe = 0;
  double with = 0, without = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    TrueRun run;
    run.law.calibration = 3;
    run.random.seed(seed);
    with += train(run, options(2, true), kLong).progress;
    without += train(run, none, kLong).progress;
  }
  EXPECT_GT(with, 0.95 * without);
}

// What a run that learns makes in the same time, against one that believes a calibration eight
// times too low or too high, and one that knows it.
TEST(TryingBatches, LearningIsNearKnowing) {
  for (const auto& [truth, wrong] : {std::pair{16.0, 2.0}, std::pair{0.5, 4.0}}) {
    double learned = 0, fooled = 0, known = 0;
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      TrueRun run;
      run.law.calibration = truth;
      run.random.seed(seed);
      learned += train(run, options(wrong, true), kLong).progress;
      fooled += train(run, options(wrong, false), kLong).progress;
      known += train(run, options(truth, false), kLong).progress;
    }
    EXPECT_GT(learned, 0.9 * known) << "c = " << truth;
    EXPECT_GT(learned / known, fooled / known) << "c = " << truth;
  }
}

}  // namespace
}  // namespace copus
