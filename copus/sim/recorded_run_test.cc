#include "copus/sim/recorded_run.h"

#include <gtest/gtest.h>

#include <cmath>

#include "copus/base/test_folder.h"
#include "copus/events/event_json.h"

namespace copus {
namespace {

TimedEvent step_event(std::int64_t step, std::int64_t batch, double loss, double t) {
  StepEvent e;
  e.step = step;
  e.samples = step * batch;
  e.loss = loss;
  e.plan = parse_plan_text("dp2.tp1.pp1.mb2", "plan")->plan;
  e.global_batch = batch;
  e.step_time = Seconds(0.5);
  return {Seconds(t), e};
}

TimedEvent start_event() {
  StartEvent e;
  e.global_batch = 4;
  return {Seconds(10), e};
}

TEST(RecordedRun, ALossIsReachedWhenTheMeanOfAWholeWindowIs) {
  RecordedRun run({3.0, 2.5}, 8);
  ASSERT_TRUE(run.add(start_event(), "test").has_value());
  const double losses[] = {2.0, 2.0, 4.0, 2.0, 2.0, 2.0};  // of 4 samples each; a window has two
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(run.add(step_event(i + 1, 4, losses[i], 10.5 + 0.5 * i), "test").has_value());
  }
  const SimOutcome outcome = run.outcome();
  ASSERT_EQ(outcome.crossings.size(), 2U);
  EXPECT_DOUBLE_EQ(outcome.crossings[0].t.v, 1.0);  // the second step completes the first window
  EXPECT_DOUBLE_EQ(outcome.crossings[0].samples, 8);
  EXPECT_TRUE(run.reached());
  EXPECT_DOUBLE_EQ(run.steps()[2].smoothed, 3.0);
  EXPECT_EQ(outcome.samples, 24);
}

TEST(RecordedRun, StepsThatAreDoneAgainReplaceTheLost) {
  RecordedRun run({1.0}, 4);
  ASSERT_TRUE(run.add(start_event(), "test").has_value());
  for (int i = 1; i <= 5; ++i) {
    ASSERT_TRUE(run.add(step_event(i, 4, 3, 10.0 + i), "test").has_value());
  }
  ASSERT_TRUE(run.add({Seconds(20), RestartEvent()}, "test").has_value());
  ASSERT_TRUE(run.add(step_event(3, 4, 3, 21), "test").has_value());
  ASSERT_EQ(run.steps().size(), 3U);
  EXPECT_EQ(run.steps().back().samples, 12);
}

TEST(RecordedRun, OnlyAMoveOfStateIsASwitchOfLayout) {
  RecordedRun run({1.0}, 4);
  const auto move = [&](const char* from, const char* to, bool done = true) {
    ReconfigureEvent e;
    e.from = parse_plan_text(from, "plan")->plan;
    e.to = parse_plan_text(to, "plan")->plan;
    e.done = done;
    e.pause = Seconds(0.25);
    return run.add({Seconds(1), e}, "test");
  };
  ASSERT_TRUE(move("dp2.tp1.pp1.mb2", "dp2.tp1.pp1.mb4").has_value());
  ASSERT_TRUE(move("dp2.tp1.pp1.mb4", "dp1.tp1.pp2.mb1").has_value());
  ASSERT_TRUE(move("dp1.tp1.pp2.mb1", "dp2.tp1.pp1.mb4", /*done=*/false).has_value());
  const SimOutcome outcome = run.outcome();
  EXPECT_EQ(outcome.switches, 2);
  EXPECT_EQ(outcome.layout_switches, 1);
  EXPECT_DOUBLE_EQ(outcome.pause.v, 0.5);
}

TEST(RecordedRun, AFileMayEndInTheMiddleOfALine) {
  const TestFolder folder;
  const auto line = [](const TimedEvent& event) { return event_to_json(event).dump() + "\n"; };
  const std::string path = folder.write(
      "events.jsonl", line(start_event()) + line(step_event(1, 4, 3, 11)) + "{\"event\":\"st");
  RecordedRun run({1.0}, 4);
  EXPECT_TRUE(run.read(path).has_value());
  EXPECT_EQ(run.steps().size(), 1U);
  ASSERT_TRUE(run.start().has_value());
  EXPECT_EQ(run.start()->global_batch, 4);
}

TEST(RecordedRun, ErrorsNameTheLineAndTheField) {
  const TestFolder folder;
  const std::string torn = folder.write("torn", "{\"event\":\"step\",\"t\":1}\n");
  EXPECT_TRUE(RecordedRun({1.0}, 4).read(torn).error().message.starts_with(torn + ":1: step:"));
  const std::string odd =
      folder.write("odd", event_to_json(start_event()).dump() + "\n" +
                              event_to_json(step_event(1, 4, std::nan(""), 11)).dump() + "\n");
  EXPECT_EQ(RecordedRun({1.0}, 4).read(odd).error().message,
            odd + ":2: loss: got nan; want a number from -1e+12 to 1e+12");
  EXPECT_EQ(RecordedRun({1.0}, 4).read(folder.path("none")).error().message,
            folder.path("none") + ": cannot be read; want a run's events.jsonl");
}

}  // namespace
}  // namespace copus
