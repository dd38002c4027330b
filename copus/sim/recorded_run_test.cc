#include "copus/sim/recorded_run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace copus {
namespace {

Json step_event(int step, int batch, double loss, double t, const char* plan = "dp2.tp1.pp1.mb2") {
  return {{"event", "step"}, {"t", t},       {"step", step},          {"samples", step * batch},
          {"loss", loss},    {"plan", plan}, {"global_batch", batch}, {"step_time_s", 0.5},
          {"gns", nullptr}};
}

Json start_event() { return {{"event", "start"}, {"t", 10.0}, {"cluster", nullptr}}; }

TEST(RecordedRun, ALossIsReachedWhenTheMeanOfAWholeWindowIs) {
  RecordedRun run({3.0, 2.5}, 8);
  ASSERT_TRUE(run.add(start_event(), "test").has_value());
  const double losses[] = {2.0, 2.0, 4.0, 2.0, 2.0, 2.0};  // of 4 samples each: two are a window
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(run.add(step_event(i + 1, 4, losses[i], 10.5 + 0.5 * i), "test").has_value());
  }
  const SimOutcome outcome = run.outcome();
  ASSERT_EQ(outcome.crossings.size(), 2U);
  EXPECT_DOUBLE_EQ(outcome.crossings[0].t.v, 1.0);  // the second step: the first window is whole
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
  ASSERT_TRUE(run.add({{"event", "restart"}, {"t", 20.0}, {"step", 2}}, "test").has_value());
  ASSERT_TRUE(run.add(step_event(3, 4, 3, 21), "test").has_value());
  ASSERT_EQ(run.steps().size(), 3U);
  EXPECT_EQ(run.steps().back().samples, 12);
}

TEST(RecordedRun, OnlyAMoveOfStateIsASwitchOfLayout) {
  RecordedRun run({1.0}, 4);
  const auto move = [&](const char* from, const char* to) {
    return run.add({{"event", "reconfigure"},
                    {"t", 1.0},
                    {"from", from},
                    {"to", to},
                    {"done", true},
                    {"pause_s", 0.25}},
                   "test");
  };
  ASSERT_TRUE(move("dp2.tp1.pp1.mb2", "dp2.tp1.pp1.mb4").has_value());
  ASSERT_TRUE(move("dp2.tp1.pp1.mb4", "dp1.tp1.pp2.mb1").has_value());
  const SimOutcome outcome = run.outcome();
  EXPECT_EQ(outcome.switches, 2);
  EXPECT_EQ(outcome.layout_switches, 1);
  EXPECT_DOUBLE_EQ(outcome.pause.v, 0.5);
}

TEST(RecordedRun, AFileMayEndInTheMiddleOfALine) {
  const std::string path = std::filesystem::temp_directory_path() / "copus_recorded_run_test.jsonl";
  std::ofstream(path) << start_event().dump() << "\n"
                      << step_event(1, 4, 3, 11).dump() << "\n"
                      << "{\"event\":\"st";
  RecordedRun run({1.0}, 4);
  EXPECT_TRUE(run.read(path).has_value());
  EXPECT_EQ(run.steps().size(), 1U);
  std::ofstream(path) << "{\"event\":\"step\",\"t\":1}\n";
  const Result<void> read = RecordedRun({1.0}, 4).read(path);
  ASSERT_FALSE(read.has_value());
  EXPECT_NE(read.error().message.find(":1"), std::string::npos) << read.error().message;
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace copus
