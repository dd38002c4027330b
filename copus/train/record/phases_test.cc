#include "copus/train/record/phases.h"

#include <gtest/gtest.h>

namespace copus {
namespace {

// A step with this batch that took `seconds`.
Event step(std::int64_t batch, double seconds, double loss,
           std::optional<double> critical_batch = std::nullopt) {
  StepEvent e;
  e.global_batch = batch;
  e.step_time = Seconds(seconds);
  e.loss = loss;
  e.critical_batch = critical_batch;
  return e;
}

Event decision(const std::string& reason) {
  DecisionEvent e;
  e.why = "dp2.tp1.pp1.mb4 at batch 16: " + reason;
  e.reason = reason;
  return e;
}

Event move(const char* to, std::int64_t batch, double pause, bool done = true) {
  ReconfigureEvent e;
  e.to = parse_plan_text(to, "plan")->plan;
  e.global_batch_to = batch;
  e.pause = Seconds(pause);
  e.done = done;
  return e;
}

void tell(Phases& phases, const Event& event) { ASSERT_TRUE(phases.take({Seconds(0), event})); }

TEST(Phases, GainOfStayingIsOne) {
  Phases phases("dp1", 8);
  for (int i = 0; i < 10; ++i) tell(phases, step(8, 0.5, 3, 20));
  EXPECT_EQ(phases.moves(), 0);
  EXPECT_NEAR(*phases.gain(Seconds(0.5)), 1, 1e-12);
}

TEST(Phases, NothingIsSaidBeforeTheCriticalBatchIsKnown) {
  Phases phases("dp1", 8);
  tell(phases, step(8, 0.5, 3));
  EXPECT_FALSE(phases.gain(Seconds(0.5)).has_value());
}

// Twice the batch in 1.5 times the time, at a critical batch of 40, and a pause of 3 s.
TEST(Phases, GainCountsEfficiencyAndPauses) {
  Phases phases("dp1", 10);
  for (int i = 0; i < 4; ++i) tell(phases, step(10, 1, 3, 40));
  tell(phases, move("dp2", 20, 3));
  for (int i = 0; i < 6; ++i) tell(phases, step(20, 1.5, 2, 40));
  const double moved = 4 * 10 * 0.8 + 6 * 20 * (1 / 1.5);
  const double stayed = (4 + 3 + 9) * 10 * 0.8;
  EXPECT_NEAR(*phases.gain(Seconds(1)), moved / stayed, 1e-12);
  EXPECT_EQ(phases.moves(), 1);
  EXPECT_EQ(phases.pause(), Seconds(3));
}

TEST(Phases, TableHasALineForEach) {
  Phases phases("dp1.tp1.pp2.mb1", 8);
  tell(phases, step(8, 0.5, 3.25));
  tell(phases, decision("Goodput +14%"));
  tell(phases, move("dp2.tp1.pp1.mb4", 16, 0.2));
  tell(phases, step(16, 0.5, 3.0));
  EXPECT_EQ(phases.table(),
            "from step  layout           batch  steps  samples/s    loss   pause  why\n"
            "1          dp1.tp1.pp2.mb1      8      1       16.0  3.2500       -  start\n"
            "2          dp2.tp1.pp1.mb4     16      1       32.0  3.0000  200 ms  Goodput +14%\n");
}

TEST(Phases, OnlyAMoveThatWasMadeBeginsOne) {
  Phases phases("dp1.tp1.pp1.mb1", 8);
  tell(phases, step(8, 0.5, 3.25));
  tell(phases, decision("Goodput +14%"));
  tell(phases, move("dp2.tp1.pp1.mb4", 16, 0, /*done=*/false));
  tell(phases, EvalEvent());
  EXPECT_EQ(phases.moves(), 0);
  tell(phases, decision("Goodput +9%"));
  tell(phases, move("dp1.tp1.pp1.mb2", 16, 0.2));
  EXPECT_EQ(phases.moves(), 1);
  EXPECT_TRUE(phases.table().ends_with("  Goodput +9%\n")) << phases.table();
}

// After a resume, steps count from the start of the run, and no move began the first phase.
TEST(Phases, TableCountsFromWhereTheRunGoesOn) {
  Phases phases("dp1.tp1.pp1.mb1", 8, 600);
  tell(phases, step(8, 0.5, 3.25));
  tell(phases, decision("Goodput +3%"));
  tell(phases, move("dp1.tp1.pp1.mb1", 16, 0.2));
  EXPECT_EQ(phases.table(),
            "from step  layout           batch  steps  samples/s    loss   pause  why\n"
            "601        dp1.tp1.pp1.mb1      8      1       16.0  3.2500       -  start\n"
            "602        dp1.tp1.pp1.mb1     16      0          -       -  200 ms  Goodput +3%\n");
}

}  // namespace
}  // namespace copus
