#include "copus/train/run/stopping.h"

#include <gtest/gtest.h>

namespace copus {
namespace {

RunOptions limits(std::optional<std::int64_t> steps, std::optional<std::int64_t> samples = {},
                  std::optional<double> until_loss = {}) {
  RunOptions options;
  options.steps = steps;
  options.samples = samples;
  options.until_loss = until_loss;
  return options;
}

TEST(Stopping, ALimitIsReachedAtItsValueAndNotBefore) {
  EXPECT_EQ(reached_limit(limits(10), {9, 0}), std::nullopt);
  EXPECT_EQ(reached_limit(limits(10), {10, 0}), EndReason::kSteps);
  EXPECT_EQ(reached_limit(limits({}, 100), {3, 99}), std::nullopt);
  EXPECT_EQ(reached_limit(limits({}, 100), {3, 128}), EndReason::kSamples);
  EXPECT_EQ(reached_limit(limits({}, {}, 2.5), {3, 99, 2.51}), std::nullopt);
  EXPECT_EQ(reached_limit(limits({}, {}, 2.5), {3, 99, 2.5}), EndReason::kLoss);
}

TEST(Stopping, TheLossIsWhatARunEndsForThenSteps) {
  const RunOptions all = limits(10, 100, 2.5);
  EXPECT_EQ(reached_limit(all, {10, 100, 2}), EndReason::kLoss);
  EXPECT_EQ(reached_limit(all, {10, 100, 3}), EndReason::kSteps);
  EXPECT_EQ(reached_limit(all, {9, 100, 3}), EndReason::kSamples);
}

TEST(Stopping, ALossThatIsNotKnownOrNoNumberReachesNothing) {
  EXPECT_EQ(reached_limit(limits({}, {}, 2.5), {3, 99}), std::nullopt);
  EXPECT_EQ(reached_limit(limits({}, {}, 2.5), {3, 99, NAN}), std::nullopt);
}

TEST(Stopping, ALimitThatIsReachedIsTheReasonThoughARankWasAskedToStop) {
  const RunOptions ten = limits(10);
  EXPECT_EQ(reason_to_stop(ten, {9, 0}, Asked::kNo, false), std::nullopt);
  EXPECT_EQ(reason_to_stop(ten, {9, 0}, Asked::kBySignal, false), EndReason::kSignal);
  EXPECT_EQ(reason_to_stop(ten, {9, 0}, Asked::kByItsTime, false), EndReason::kTime);
  EXPECT_EQ(reason_to_stop(ten, {10, 0}, Asked::kBySignal, false), EndReason::kSteps);
  // Without its last evaluation a run is not over: a resumed run evaluates first.
  EXPECT_EQ(reason_to_stop(ten, {10, 0}, Asked::kBySignal, true), EndReason::kSignal);
}

TEST(Stopping, TimeLeftIsOfTheLimitThatComesFirst) {
  const Reached at{.steps = 40, .samples = 640};
  const Pace pace{.step = Seconds(0.5), .global_batch = 16, .elapsed = Seconds(20)};
  EXPECT_DOUBLE_EQ(time_left(limits(100), at, pace).value().v, 30);
  EXPECT_DOUBLE_EQ(time_left(limits(100, 800), at, pace).value().v, 5);
  RunOptions timed = limits(100);
  timed.for_time = Seconds(28);
  EXPECT_DOUBLE_EQ(time_left(timed, at, pace).value().v, 8);
  timed.for_time = Seconds(10);
  EXPECT_DOUBLE_EQ(time_left(timed, at, pace).value().v, 0);
  Pace over = pace;
  over.out_of_time = true;  // --for does not bind the run that resumes
  EXPECT_DOUBLE_EQ(time_left(timed, at, over).value().v, 30);
  EXPECT_EQ(time_left(limits({}, {}, 2.5), at, pace), std::nullopt);
}

}  // namespace
}  // namespace copus
