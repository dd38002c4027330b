#include "copus/train/health/stall.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "copus/train/health/watchdog.h"

namespace copus {
namespace {

class StallTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::path(testing::TempDir()) /
               fmt::format("copus_stall_{}_{}", ::getpid(),
                           testing::UnitTest::GetInstance()->current_test_info()->name()))
                  .string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Activity> rank(int number) const {
    auto activity = std::make_unique<Activity>();
    const Result<void> published = activity->publish(folder_, number);
    EXPECT_TRUE(published) << published.error().message;
    return activity;
  }
  std::vector<RankActivity> look() const { return read_activities(folder_, {0, 1, 2, 3}); }

  std::string folder_;
};

TEST_F(StallTest, OthersReadWhatARankDoes) {
  const auto two = rank(2);
  two->set_step(7);
  const int group = two->add_group("dp (ranks 1,2)");
  EXPECT_EQ(look()[0].text, "starting");
  {
    const Activity::Scope pass(*two, Doing::kForward, 3);
    EXPECT_EQ(place_of(look()[0]), "in the forward pass of micro-batch 3 of step 7");
    {
      const Activity::Scope wait(*two, Operation::kAllReduce, group, 12);
      EXPECT_EQ(look()[0].text, "in all-reduce number 12 in group dp (ranks 1,2)");
      EXPECT_EQ(look()[0].doing, Doing::kCommunicating);
    }
    EXPECT_EQ(look()[0].text, "in the forward pass of micro-batch 3") << "as before";
  }
  EXPECT_EQ(look()[0].changes, 4U);
  EXPECT_EQ(look()[0].rank, 2);
}

TEST_F(StallTest, WhatIsReadOutlivesTheRank) {
  {
    const auto one = rank(1);
    one->set_step(3);
  }
  ASSERT_EQ(look().size(), 1U);
  EXPECT_EQ(look()[0].step, 3);
  const auto again = rank(1);
  EXPECT_EQ(look()[0].step, 0) << "a new attempt starts anew";
  again->remove_file();
  EXPECT_TRUE(look().empty());
  EXPECT_FALSE(std::filesystem::exists(folder_)) << "the last rank removes the folder";
}

TEST_F(StallTest, TwoOfOneRankAreRefused) {
  const auto one = rank(1);
  const Result<void> other = Activity().publish(folder_, 1);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("held by another run"), std::string::npos);
}

TEST_F(StallTest, FilesThatAreNoneAreLeftOut) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/rank-0") << "short";
  std::ofstream(folder_ + "/rank-1") << std::string(1 << 20, 'x');
  EXPECT_TRUE(look().empty());
}

TEST_F(StallTest, GroupsBeyondTheTableLoseOnlyTheirName) {
  const auto one = rank(1);
  int last = 0;
  for (int i = 0; i < 1000; ++i) last = one->add_group(std::string(300, 'g'));
  const Activity::Scope wait(*one, Operation::kSend, last, 5);
  EXPECT_EQ(look()[0].text, "in send number 5 in group (unnamed)");
}

TEST_F(StallTest, ASilentRankExplainsThoseThatWait) {
  const auto a = rank(0), b = rank(1), c = rank(2);
  const Activity::Scope pass(*b, Doing::kBackward, 1);
  const Activity::Scope wait(*a, Operation::kAllReduce, 0, 1);
  for (int i = 0; i < 10; ++i) a->tick(10), b->tick(10), c->tick(10);
  const auto before = look();
  for (int i = 0; i < 10; ++i) a->tick(20), c->tick(20);
  const std::vector<Stall> stalls = stalled_ranks(before, look(), Seconds(2));
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(to_text(stalls),
            "rank 1 has been silent for 5 s, in the backward pass of micro-batch 1");
}

TEST_F(StallTest, ARankThatWaitsForNobodyAndDoesNotMoveIsStuck) {
  const auto a = rank(0), b = rank(1);
  const Activity::Scope wait(*a, Operation::kAllReduce, 0, 1);
  const Activity::Scope pass(*b, Doing::kReadingData);
  const auto before = look();
  a->tick(20);
  b->tick(20);
  EXPECT_EQ(to_text(stalled_ranks(before, look(), Seconds(10))),
            "rank 1 has been reading the data for 10 s");
  EXPECT_EQ(to_text(stalled_ranks(before, look(), Seconds(11))), "");
}

// The message is a grammatical sentence for every kind of work.
TEST_F(StallTest, WhatARankHasBeenDoingIsASentence) {
  const auto one = rank(1);
  one->set_step(120);
  const auto sentences = [&](Doing doing) {
    const Activity::Scope does(*one, doing, 2);
    const RankActivity now = look()[0];
    return to_text({{now, false, Seconds(9)}}) + "\n" + to_text({{now, true, Seconds(9)}});
  };
  EXPECT_EQ(sentences(Doing::kSaving),
            "rank 1 has been saving a checkpoint of step 120 for 9 s\n"
            "rank 1 has been silent for 9 s, saving a checkpoint of step 120");
  EXPECT_EQ(sentences(Doing::kForward),
            "rank 1 has been in the forward pass of micro-batch 2 of step 120 for 9 s\n"
            "rank 1 has been silent for 9 s, in the forward pass of micro-batch 2 of step 120");
  EXPECT_EQ(sentences(Doing::kBetweenSteps),
            "rank 1 has been in other work of step 120 for 9 s\n"
            "rank 1 has been silent for 9 s, in other work of step 120");
}

TEST_F(StallTest, ARankThatGaveUpIsNotToBlame) {
  const auto a = rank(0), b = rank(1);
  a->over();
  const auto before = look();
  b->tick(1);
  EXPECT_EQ(to_text(stalled_ranks(before, look(), Seconds(10))), "");
}

TEST_F(StallTest, AfterTheEndItIsKnownWhoFellSilentFirst) {
  {
    const auto a = rank(0), b = rank(1), c = rank(2);
    for (int i = 0; i < 20; ++i) a->tick(0), c->tick(0);
    b->tick(0);
    a->over();
  }
  const std::vector<Stall> stalls = stalled_before_the_end(look(), Seconds(5));
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].rank.rank, 1);
  EXPECT_TRUE(stalled_before_the_end(look(), Seconds(50)).empty());
}

TEST_F(StallTest, TheWatchdogNamesTheOperationThenGivesUp) {
  const auto one = rank(0);
  std::vector<std::string> said;
  std::atomic<bool> gave_up = false;
  const Activity::Scope pass(*one, Doing::kForward, 2);
  WatchdogOptions options;
  options.limit = Seconds(1);
  options.tick = Seconds(0.01);
  options.say = [&](const std::string& line) { said.push_back(line); };
  options.give_up = [&](const std::string& line) {
    said.push_back(line);
    gave_up = true;
  };
  {
    const Watchdog watchdog(*one, options);
    for (int i = 0; i < 3000 && !gave_up; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ASSERT_TRUE(gave_up);
  ASSERT_EQ(said.size(), 2U);
  EXPECT_TRUE(said[0].starts_with("rank 0 has been in the forward pass of micro-batch 2 for "))
      << said[0];
  EXPECT_NE(said[1].find("twice as long"), std::string::npos) << said[1];
}

TEST_F(StallTest, TheWatchdogIsSilentWhileThereIsProgress) {
  const auto one = rank(0);
  std::atomic<int> said = 0;
  WatchdogOptions options;
  options.limit = Seconds(2);
  options.tick = Seconds(0.01);
  options.say = options.give_up = [&](const std::string&) { ++said; };
  const Watchdog watchdog(*one, options);
  for (int i = 0; i < 100; ++i) {
    const Activity::Scope pass(*one, Doing::kForward, i);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(said, 0);
}

TEST(Watchdog, StartsAndCheckpointsMayTakeLonger) {
  EXPECT_EQ(longest_time(Doing::kForward, Seconds(10)), Seconds(10));
  EXPECT_GT(longest_time(Doing::kSaving, Seconds(10)), Seconds(10));
  EXPECT_GT(longest_time(Doing::kStarting, Seconds(10)), Seconds(10));
  // A rank that waits for a saving or loading rank may wait as long.
  EXPECT_EQ(longest_time(Doing::kMeeting, Seconds(10)), longest_time(Doing::kSaving, Seconds(10)));
  EXPECT_EQ(longest_time(Doing::kMeeting, Seconds(10)), longest_time(Doing::kLoading, Seconds(10)));
}

}  // namespace
}  // namespace copus
