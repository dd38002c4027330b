#include "copus/train/record/phases.h"

#include <gtest/gtest.h>

namespace copus {
namespace {

TEST(Phases, GainOfStayingIsOne) {
  Phases phases("dp1", 8, GoodputKind::kPlain);
  for (int i = 0; i < 10; ++i)
    phases.add({.batch = 8, .seconds = 0.5, .loss = 3, .critical_batch = 20});
  EXPECT_EQ(phases.moves(), 0);
  EXPECT_NEAR(*phases.gain(0.5), 1, 1e-12);
}

TEST(Phases, NothingIsSaidBeforeTheCriticalBatchIsKnown) {
  Phases phases("dp1", 8, GoodputKind::kPlain);
  phases.add({.batch = 8, .seconds = 0.5, .loss = 3});
  EXPECT_FALSE(phases.gain(0.5).has_value());
}

// Twice the batch in 1.5 times the time, at a critical batch of 40, and a pause of 3 s.
TEST(Phases, GainCountsEfficiencyAndPauses) {
  Phases phases("dp1", 10, GoodputKind::kPlain);
  for (int i = 0; i < 4; ++i)
    phases.add({.batch = 10, .seconds = 1, .loss = 3, .critical_batch = 40});
  phases.move("dp2", 20, "because", 3);
  for (int i = 0; i < 6; ++i) {
    phases.add({.batch = 20, .seconds = 1.5, .loss = 2, .critical_batch = 40});
  }
  const double moved = 4 * 10 * 0.8 + 6 * 20 * (1 / 1.5);
  const double stayed = (4 + 3 + 9) * 10 * 0.8;
  EXPECT_NEAR(*phases.gain(1), moved / stayed, 1e-12);
  EXPECT_EQ(phases.moves(), 1);
  EXPECT_EQ(phases.pause_s(), 3);
}

TEST(Phases, TableHasALineForEach) {
  Phases phases("dp1.tp1.pp2.mb1", 8, GoodputKind::kLrAware);
  phases.add({.batch = 8, .seconds = 0.5, .loss = 3.25});
  phases.move("dp2.tp1.pp1.mb4", 16, "Goodput +14%", 0.2);
  phases.add({.batch = 16, .seconds = 0.5, .loss = 3.0});
  EXPECT_EQ(phases.table(),
            "from step  layout           batch  steps  samples/s    loss   pause  why\n"
            "1          dp1.tp1.pp2.mb1      8      1       16.0  3.2500       -  start\n"
            "2          dp2.tp1.pp1.mb4     16      1       32.0  3.0000  200 ms  Goodput +14%\n");
}

// After a resume: steps are the run's, and the first phase began with no move.
TEST(Phases, TableCountsFromWhereTheRunGoesOn) {
  Phases phases("dp1.tp1.pp1.mb1", 8, GoodputKind::kPlain, 600);
  phases.add({.batch = 8, .seconds = 0.5, .loss = 3.25});
  phases.move("dp1.tp1.pp1.mb1", 16, "Goodput +3%", 0.2);
  EXPECT_EQ(phases.table(),
            "from step  layout           batch  steps  samples/s    loss   pause  why\n"
            "601        dp1.tp1.pp1.mb1      8      1       16.0  3.2500       -  start\n"
            "602        dp1.tp1.pp1.mb1     16      0          -       -  200 ms  Goodput +3%\n");
}

}  // namespace
}  // namespace copus
