#include "copus/train/launch/restarts.h"

#include <gtest/gtest.h>

namespace copus {
namespace {

SupervisorOutcome failure(int exit_code = 1) {
  SupervisorOutcome outcome;
  outcome.exit_code = exit_code;
  outcome.failed_rank = 2;
  outcome.message = "rank 2 was killed";
  return outcome;
}

TEST(Restarts, OnlyWhatMayEndOtherwiseIsStartedAgain) {
  EXPECT_TRUE(Restarts::may_help(failure()));
  EXPECT_FALSE(Restarts::may_help(failure(0)));
  EXPECT_FALSE(Restarts::may_help(failure(2))) << "bad input";
  SupervisorOutcome stopped = failure(143);
  stopped.interrupted = true;
  EXPECT_FALSE(Restarts::may_help(stopped));
  SupervisorOutcome verdict = failure();
  verdict.verdict = true;
  EXPECT_FALSE(Restarts::may_help(verdict));
}

TEST(Restarts, NoneUnlessAsked) {
  Restarts rule({}, 4, std::nullopt);
  EXPECT_EQ(rule.next(failure(), {2}, 10).error().message, "rank 2 was killed");
}

TEST(Restarts, SoManyAndNoMore) {
  Restarts rule({.max_restarts = 5}, 4, std::nullopt);
  for (std::int64_t i = 1; i <= 5; ++i) {
    const auto attempt = rule.next(failure(), {2}, 10 * i);
    ASSERT_TRUE(attempt) << i;
    EXPECT_EQ(attempt->ranks, 4) << "without --elastic, no rank is dropped";
    EXPECT_EQ(attempt->wait, Restarts::kFirstWait);
  }
  EXPECT_EQ(rule.next(failure(), {2}, 100).error().message,
            "rank 2 was killed; restarted 5 times already, and --max-restarts allows no more");
}

TEST(Restarts, ThreeThatBringNoCheckpointAreEnough) {
  for (const std::optional<std::int64_t> stuck_at :
       {std::optional<std::int64_t>(), std::optional<std::int64_t>(40)}) {
    Restarts rule({.max_restarts = 100}, 2, stuck_at);
    Seconds wait;
    for (int i = 0; i < Restarts::kFruitless; ++i) {
      const auto attempt = rule.next(failure(), {}, stuck_at);
      ASSERT_TRUE(attempt) << i;
      EXPECT_GT(attempt->wait, wait) << "more patient each time";
      wait = attempt->wait;
    }
    const auto enough = rule.next(failure(), {}, stuck_at);
    ASSERT_FALSE(enough);
    EXPECT_NE(enough.error().message.find("3 restarts in a row"), std::string::npos);
  }
}

TEST(Restarts, ANewCheckpointStartsTheCountAnew) {
  Restarts rule({.max_restarts = 100}, 2, std::nullopt);
  for (std::int64_t i = 0; i < 50; ++i) ASSERT_TRUE(rule.next(failure(), {}, i / 2)) << i;
}

TEST(Restarts, ElasticGoesOnWithWhatIsLeftDownToTheLeast) {
  Restarts rule({.max_restarts = 9, .least_ranks = 2}, 4, std::nullopt);
  EXPECT_EQ(rule.next(failure(), {1}, 1)->ranks, 3);
  EXPECT_EQ(rule.next(failure(), {}, 2)->ranks, 3) << "nobody was lost";
  EXPECT_EQ(rule.next(failure(), {0}, 3)->ranks, 2);
  EXPECT_EQ(rule.next(failure(), {0}, 4).error().message,
            "rank 2 was killed; 1 of 2 ranks are left, and --elastic wants 2 at least");
}

}  // namespace
}  // namespace copus
