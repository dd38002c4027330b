#include "copus/sim/fit_curve.h"

#include <gtest/gtest.h>

#include <cmath>

namespace copus {
namespace {

constexpr std::int64_t kWindow = 64;

LossCurve true_curve() {
  LossCurve curve;
  curve.floor = 1.5;
  curve.scale = 40;
  curve.exponent = 0.6;
  curve.start_loss = 5.5;
  curve.critical_scale = 60;
  curve.critical_exponent = 0;
  return curve;
}

// Returns a run at one batch whose steps follow a law.
RecordedRun run_at(std::int64_t batch, double critical, double sharpness, double until) {
  LossCurve curve = true_curve();
  curve.critical_scale = critical;
  const ProgressLaw law{0, 1, sharpness};
  RecordedRun run({until}, kWindow);
  double progress = 0, loss = curve.start_loss;
  for (std::int64_t step = 1; loss > until * 0.995; ++step) {
    progress += law.step(static_cast<double>(batch), curve.critical_batch(loss));
    loss = curve.loss_at(progress);
    StepEvent event;
    event.step = step;
    event.samples = step * batch;
    event.loss = loss;
    event.global_batch = batch;
    event.step_time = Seconds(0.1);
    event.gns = critical / 2;
    const Seconds t(0.1 * static_cast<double>(step));
    EXPECT_TRUE(run.add({t, event}, "test").has_value());
  }
  return run;
}

// Returns the steps to a loss at a batch by the fitted curve and law.
double steps_to(const FittedCurve& fitted, double batch, double until) {
  double progress = 0, steps = 0, loss = fitted.curve.start_loss;
  while (loss > until && steps < 1e6) {
    progress += fitted.law.step(batch, fitted.curve.critical_batch(loss));
    loss = fitted.curve.loss_at(progress);
    ++steps;
  }
  return steps;
}

TEST(FitCurve, RunsAtTwoBatchesTellThoseAtAThird) {
  for (const double sharpness : {1.0, 2.5}) {
    for (const double critical : {20.0, 60.0}) {
      const std::vector<RecordedRun> runs = {run_at(4, critical, sharpness, 2.5),
                                             run_at(16, critical, sharpness, 2.5),
                                             run_at(64, critical, sharpness, 2.5)};
      const auto fitted = fit_curve(runs, 2);
      ASSERT_TRUE(fitted.has_value()) << fitted.error().message;
      EXPECT_LT(fitted->spread, 0.1);
      const RecordedRun third = run_at(32, critical, sharpness, 2.5);
      const double recorded = static_cast<double>(third.steps().size());
      EXPECT_NEAR(steps_to(*fitted, 32, third.smoothed()) / recorded, 1, 0.06)
          << "critical batch " << critical << ", sharpness " << sharpness;
    }
  }
}

TEST(FitCurve, OneRunAloneLeavesTheCriticalBatchWhereItIsBelieved) {
  const auto fitted = fit_curve({run_at(16, 60, 1, 2.5)}, 2);
  ASSERT_TRUE(fitted.has_value());
  EXPECT_NEAR(fitted->curve.critical_batch(2.5), 60, 1);
  EXPECT_NEAR(fitted->law.sharpness, 1, 1e-3);
}

TEST(FitCurve, RunsWithNothingInCommonAreRefused) {
  const auto short_run = fit_curve({RecordedRun({1}, 4)}, 2);
  ASSERT_FALSE(short_run.has_value());
  EXPECT_NE(short_run.error().message.find("--from"), std::string::npos);
}

}  // namespace
}  // namespace copus
