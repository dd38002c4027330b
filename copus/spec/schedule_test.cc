#include "copus/spec/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace copus {
namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::kGPipe, ScheduleKind::k1F1B,
                                   ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble};

Schedule make(ScheduleKind kind, std::int64_t pp, std::int64_t vp, std::int64_t micro_batches) {
  auto schedule = make_schedule(kind, pp, vp, micro_batches);
  EXPECT_TRUE(schedule) << (schedule ? "" : schedule.error().message);
  return schedule ? *schedule : Schedule{};
}

// Calls visit(schedule) for many shapes, with every kind of schedule that suits the shape.
template <typename Visit>
void for_each_schedule(Visit visit) {
  for (std::int64_t pp = 1; pp <= 12; ++pp) {
    for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 24, 31, 32}) {
      for (const ScheduleKind kind : kKinds) {
        if (kind != ScheduleKind::kInterleaved) visit(make(kind, pp, 1, m));
      }
    }
    for (std::int64_t vp = 2; vp <= 4; ++vp) {
      for (const std::int64_t groups : {1, 2, 3, 4, 7}) {
        visit(make(ScheduleKind::kInterleaved, pp, vp, groups * pp));
      }
    }
  }
}

std::string error_of(const Schedule& schedule) {
  const Result<void> checked = check_schedule(schedule);
  return checked ? "" : checked.error().message;
}

std::string make_error_of(ScheduleKind kind, std::int64_t pp, std::int64_t vp, std::int64_t m) {
  const auto schedule = make_schedule(kind, pp, vp, m);
  return schedule ? "" : schedule.error().message;
}

// Whether `error` holds every one of `parts`.
::testing::AssertionResult says(const std::string& error,
                                std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) {
    if (error.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "\"" << error << "\" does not say \"" << part << "\"";
    }
  }
  return ::testing::AssertionSuccess();
}

TEST(Schedule, EveryBuiltScheduleIsCompleteMatchedAndFreeOfDeadlock) {
  for_each_schedule([](const Schedule& s) { EXPECT_EQ(error_of(s), "") << to_text(s); });
}

TEST(Schedule, OneForwardOneBackwardTurnsAfterItsWarmUp) {
  EXPECT_EQ(to_text(make(ScheduleKind::k1F1B, 3, 1, 4)),
            "rank 0: F0 F1 F2 B0 F3 B1 B2 B3\n"
            "rank 1: F0 F1 B0 F2 B1 F3 B2 B3\n"
            "rank 2: F0 B0 F1 B1 F2 B2 F3 B3\n");
}

TEST(Schedule, GPipeDoesAllForwardsFirst) {
  EXPECT_EQ(to_text(make(ScheduleKind::kGPipe, 2, 1, 3)),
            "rank 0: F0 F1 F2 B0 B1 B2\n"
            "rank 1: F0 F1 F2 B0 B1 B2\n");
}

TEST(Schedule, InterleavedTakesGroupsOfPpThroughTheChunks) {
  EXPECT_EQ(to_text(make(ScheduleKind::kInterleaved, 2, 2, 4)),
            "rank 0: F0.c0 F1.c0 F0.c2 F1.c2 F2.c0 B0.c2 F3.c0 B1.c2 F2.c2 B0.c0 F3.c2 B1.c0 "
            "B2.c2 B3.c2 B2.c0 B3.c0\n"
            "rank 1: F0.c1 F1.c1 F0.c3 B0.c3 F1.c3 B1.c3 F2.c1 B0.c1 F3.c1 B1.c1 F2.c3 B2.c3 "
            "F3.c3 B3.c3 B2.c1 B3.c1\n");
}

TEST(Schedule, InterleavedWarmUpIsMegatrons) {
  const Schedule s = make(ScheduleKind::kInterleaved, 4, 3, 16);
  for (std::int32_t rank = 0; rank < s.pp; ++rank) {
    const auto& actions = s.ranks[static_cast<std::size_t>(rank)];
    const auto first_backward = std::find_if(actions.begin(), actions.end(), [](const Action& a) {
      return a.kind != ActionKind::kForward;
    });
    // One forward of the first 1F1B pair comes after the warm-up.
    EXPECT_EQ(first_backward - actions.begin(), (4 - rank - 1) * 2 + (3 - 1) * 4 + 1);
  }
}

TEST(Schedule, ZeroBubblePutsWeightPartsOffByTheRank) {
  EXPECT_EQ(to_text(make(ScheduleKind::kZeroBubble, 3, 1, 4)),
            "rank 0: F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3\n"
            "rank 1: F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3\n"
            "rank 2: F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3\n");
}

TEST(Schedule, RefusesShapesThatItsKindCannotTake) {
  EXPECT_TRUE(says(make_error_of(ScheduleKind::kInterleaved, 4, 2, 6),
                   {"micro_batches: got 6", "multiple of pp=4"}));
  EXPECT_TRUE(says(make_error_of(ScheduleKind::kInterleaved, 4, 1, 8), {"vp: got 1; want 2"}));
  EXPECT_TRUE(says(make_error_of(ScheduleKind::k1F1B, 4, 2, 8), {"vp: got 2; want 1"}));
  EXPECT_TRUE(says(make_error_of(ScheduleKind::kGPipe, 0, 1, 8), {"pp: got 0"}));
  EXPECT_TRUE(says(make_error_of(ScheduleKind::kZeroBubble, 2, 1, -3), {"micro_batches: got -3"}));
  EXPECT_TRUE(says(make_error_of(ScheduleKind::k1F1B, 1 << 20, 1, 1 << 20), {"want at most"}));
}

constexpr std::int32_t kAllRanks = -1;

// Plays a schedule and returns whether every action was done. `early` says which messages a rank
// asks for before the previous action. The rank `stands_still` begins an action only when
// every message that it has asked for has arrived, and every message that it has sent has been
// asked for. This is the worst that the host of a GPU can do. The other ranks wait only for the
// message of their next action.
bool completes(const Schedule& schedule, const std::vector<std::vector<bool>>& early,
               std::int32_t stands_still) {
  using Message = std::tuple<bool, std::int32_t, std::int32_t>;  // forward, to chunk, micro-batch
  const auto message = [&](const Action& a, std::int32_t step,
                           std::int32_t to) -> std::optional<Message> {
    const std::int32_t other = a.chunk + step;
    if (other < 0 || other >= schedule.chunks()) return std::nullopt;
    return Message(a.kind == ActionKind::kForward, to, a.micro_batch);
  };
  const auto step_of = [](const Action& a) { return a.kind == ActionKind::kForward ? 1 : -1; };
  const auto taken = [&](const Action& a) { return message(a, -step_of(a), a.chunk); };
  const auto given = [&](const Action& a) { return message(a, step_of(a), a.chunk + step_of(a)); };
  std::set<Message> sent, asked;
  std::vector<std::size_t> done(schedule.ranks.size(), 0), asked_up_to(schedule.ranks.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < done.size(); ++r) {
      const std::vector<Action>& actions = schedule.ranks[r];
      if (done[r] == actions.size()) continue;
      const auto ask = [&](std::size_t i) {
        if (i >= actions.size() || i < asked_up_to[r]) return;
        asked_up_to[r] = i + 1;
        if (const auto wanted = taken(actions[i])) asked.insert(*wanted);
        moved = true;
      };
      ask(done[r]);
      if (done[r] + 1 < actions.size() && early[r][done[r] + 1]) ask(done[r] + 1);
      const bool still = stands_still == static_cast<std::int32_t>(r);
      bool waits = false;
      for (std::size_t i = still ? 0 : done[r]; i < (still ? asked_up_to[r] : done[r] + 1); ++i) {
        const auto wanted = taken(actions[i]);
        waits = waits || (wanted && !sent.contains(*wanted));
      }
      for (std::size_t i = 0; still && i < done[r]; ++i) {
        const auto out = given(actions[i]);
        waits = waits || (out && !asked.contains(*out));
      }
      if (waits) continue;
      if (const auto out = given(actions[done[r]])) sent.insert(*out);
      ++done[r];
      moved = true;
    }
  }
  for (std::size_t r = 0; r < done.size(); ++r) {
    if (done[r] != schedule.ranks[r].size()) return false;
  }
  return true;
}

std::vector<std::vector<bool>> early_on_all_ranks(const Schedule& schedule) {
  std::vector<std::vector<bool>> early;
  for (std::int32_t rank = 0; rank < schedule.pp; ++rank) {
    early.push_back(arrives_early(schedule, rank));
  }
  return early;
}

std::vector<std::vector<bool>> on_all_ranks(const Schedule& schedule, bool value) {
  std::vector<std::vector<bool>> early;
  for (const auto& actions : schedule.ranks) early.emplace_back(actions.size(), value);
  return early;
}

// The schedules that the trainer runs.
std::vector<Schedule> trained_schedules() {
  std::vector<Schedule> all;
  for (const std::int64_t pp : {2, 3, 4, 8}) {
    for (const std::int64_t m : {1, 2, 3, 4, 7, 16}) {
      all.push_back(make(ScheduleKind::kGPipe, pp, 1, m));
      all.push_back(make(ScheduleKind::k1F1B, pp, 1, m));
    }
    for (const std::int64_t vp : {2, 3}) {
      for (const std::int64_t rounds : {1, 2, 4}) {
        all.push_back(make(ScheduleKind::kInterleaved, pp, vp, pp * rounds));
      }
    }
  }
  return all;
}

TEST(ArrivesEarly, OneRankThatStandsStillStopsNobody) {
  for (const Schedule& schedule : trained_schedules()) {
    for (std::int32_t rank = 0; rank < schedule.pp; ++rank) {
      EXPECT_TRUE(completes(schedule, early_on_all_ranks(schedule), rank))
          << "rank " << rank << "\n"
          << to_text(schedule);
    }
  }
}

TEST(ArrivesEarly, AMessageThatWaitsForTheActionInFrontWouldStopARankThatStandsStill) {
  for (const std::int64_t m : {1, 2}) {
    const Schedule schedule = make(ScheduleKind::k1F1B, 4, 1, m);
    EXPECT_FALSE(completes(schedule, on_all_ranks(schedule, true), 0));
  }
}

TEST(ArrivesEarly, InTheSteadyPhaseEveryMessageDoes) {
  const Schedule schedule = make(ScheduleKind::k1F1B, 4, 1, 16);
  for (std::int32_t rank = 1; rank < 3; ++rank) {
    const std::vector<bool> early = arrives_early(schedule, rank);
    const auto first = static_cast<std::size_t>(2 * schedule.pp);
    for (std::size_t i = first; i < early.size() - first; ++i) EXPECT_TRUE(early[i]) << i;
  }
}

TEST(PeakActivations, AreThoseOfThePapers) {
  for_each_schedule([](const Schedule& s) {
    const std::int64_t m = s.micro_batches;
    const std::vector<std::int64_t> peaks = peak_activations(s);
    ASSERT_EQ(peaks.size(), static_cast<std::size_t>(s.pp));
    for (std::int64_t rank = 0; rank < s.pp; ++rank) {
      std::int64_t expected = m;  // GPipe
      if (s.kind == ScheduleKind::k1F1B) expected = std::min<std::int64_t>(m, s.pp - rank);
      // Every rank of ZB-H1 may hold what rank 0 of 1F1B holds.
      if (s.kind == ScheduleKind::kZeroBubble) expected = std::min<std::int64_t>(m, s.pp);
      if (s.kind == ScheduleKind::kInterleaved) {
        expected = std::min(m * s.vp, (s.pp - rank - 1) * 2 + (s.vp - 1) * std::int64_t{s.pp} + 1);
      }
      EXPECT_EQ(peaks[static_cast<std::size_t>(rank)], expected) << to_text(s);
    }
  });
}

TEST(PeakActivations, AreHeldUntilTheWeightPart) {
  Schedule s;
  s.micro_batches = 2;
  s.ranks = {{{ActionKind::kForward, 0, 0},
              {ActionKind::kBackwardInput, 0, 0},
              {ActionKind::kForward, 0, 1},
              {ActionKind::kBackwardInput, 0, 1},
              {ActionKind::kBackwardWeight, 0, 0},
              {ActionKind::kBackwardWeight, 0, 1}}};
  EXPECT_EQ(error_of(s), "");
  EXPECT_EQ(peak_activations(s), std::vector<std::int64_t>{2});
}

// Tests that check_schedule() finds mutations of a good schedule, with one schedule of each kind.
class CheckSchedule : public ::testing::TestWithParam<ScheduleKind> {
 protected:
  Schedule good() const {
    return GetParam() == ScheduleKind::kInterleaved ? make(GetParam(), 3, 2, 6)
                                                    : make(GetParam(), 4, 1, 6);
  }

  // Calls visit(rank, index) for every action of good().
  template <typename Visit>
  void for_each_action(Visit visit) const {
    const Schedule s = good();
    for (std::size_t rank = 0; rank < s.ranks.size(); ++rank) {
      for (std::size_t i = 0; i < s.ranks[rank].size(); ++i) visit(rank, i);
    }
  }
};

std::string kind_name(const ::testing::TestParamInfo<ScheduleKind>& info) {
  constexpr const char* kNames[] = {"GPipe", "OneFOneB", "Interleaved", "ZeroBubble"};
  return kNames[static_cast<std::size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Kinds, CheckSchedule, ::testing::ValuesIn(kKinds), kind_name);

std::string named(const Action& a) {
  return "of chunk " + std::to_string(a.chunk) + ", micro-batch " + std::to_string(a.micro_batch);
}

TEST_P(CheckSchedule, NamesADroppedAction) {
  for_each_action([&](std::size_t rank, std::size_t i) {
    Schedule s = good();
    auto& actions = s.ranks[rank];
    const Action dropped = actions[i];
    actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(
        says(error_of(s), {named(dropped), "missing", "rank " + std::to_string(rank) + ":"}));
  });
}

TEST_P(CheckSchedule, NamesADuplicatedAction) {
  for_each_action([&](std::size_t rank, std::size_t i) {
    Schedule s = good();
    s.ranks[rank].push_back(s.ranks[rank][i]);
    EXPECT_TRUE(says(error_of(s), {named(s.ranks[rank][i]), "done twice"}));
  });
}

TEST_P(CheckSchedule, NamesAnActionOnTheWrongRank) {
  for_each_action([&](std::size_t rank, std::size_t i) {
    Schedule s = good();
    const Action moved = s.ranks[rank][i];
    s.ranks[rank].erase(s.ranks[rank].begin() + static_cast<std::ptrdiff_t>(i));
    s.ranks[(rank + 1) % s.ranks.size()].push_back(moved);
    EXPECT_TRUE(says(error_of(s), {named(moved), "belongs on rank " + std::to_string(rank)}));
  });
}

TEST_P(CheckSchedule, NamesABackwardBeforeItsForward) {
  Schedule s = good();
  std::reverse(s.ranks[1].begin(), s.ranks[1].end());
  EXPECT_TRUE(says(error_of(s), {"rank 1:", "comes before its"}));
}

TEST_P(CheckSchedule, NamesTheFirstMessageOutOfOrder) {
  Schedule s = good();
  std::swap(s.ranks[0][0].micro_batch, s.ranks[0][1].micro_batch);
  EXPECT_EQ(
      error_of(s),
      "rank 0 to rank 1: forward of chunk 0, micro-batch 1 is sent next, but forward of chunk "
      "1, micro-batch 0 is received next");
}

TEST_P(CheckSchedule, NamesAnActionThatDoesNotExist) {
  Schedule s = good();
  s.ranks[0][0].chunk = s.chunks();
  EXPECT_TRUE(says(error_of(s), {"want chunks below"}));
  s = good();
  s.ranks[0][0].micro_batch = -1;
  EXPECT_TRUE(says(error_of(s), {"micro-batch -1"}));
  s = good();
  s.ranks[0][0].kind = static_cast<ActionKind>(17);
  EXPECT_TRUE(says(error_of(s), {"unknown action"}));
}

TEST(CheckScheduleShape, RefusesListsThatDoNotFitTheShape) {
  Schedule s = make(ScheduleKind::k1F1B, 2, 1, 4);
  s.ranks.pop_back();
  EXPECT_TRUE(says(error_of(s), {"ranks: got 1 lists of actions; want pp=2"}));
  s = make(ScheduleKind::k1F1B, 2, 1, 4);
  s.micro_batches = 2'000'000'000;
  EXPECT_TRUE(says(error_of(s), {"actions: got 16"}));
  s.micro_batches = 0;
  EXPECT_TRUE(says(error_of(s), {"want 1 or more each"}));
}

TEST(CheckScheduleShape, RefusesAFusedBackwardBesideItsParts) {
  Schedule s = make(ScheduleKind::kZeroBubble, 1, 1, 1);
  s.ranks[0].push_back({ActionKind::kBackward, 0, 0});
  EXPECT_TRUE(says(error_of(s), {"backward of chunk 0, micro-batch 0: done twice"}));
}

TEST(CheckScheduleDeadlock, NamesTheFirstRankThatWaits) {
  // Rank 0 waits for the gradient of micro-batch 0 before it sends micro-batch 1. Rank 1 waits for
  // micro-batch 1 before it computes that gradient.
  Schedule s = make(ScheduleKind::k1F1B, 2, 1, 2);
  s.ranks[0] = {{ActionKind::kForward, 0, 0},
                {ActionKind::kBackward, 0, 0},
                {ActionKind::kForward, 0, 1},
                {ActionKind::kBackward, 0, 1}};
  EXPECT_EQ(error_of(s), "");  // slow, but it ends
  s.ranks[1] = {{ActionKind::kForward, 1, 0},
                {ActionKind::kForward, 1, 1},
                {ActionKind::kBackward, 1, 0},
                {ActionKind::kBackward, 1, 1}};
  EXPECT_EQ(error_of(s),
            "rank 0: backward of chunk 0, micro-batch 0: waits for chunk 1 on rank 1, which waits "
            "in turn: deadlock");
}

TEST(CheckScheduleDeadlock, FindsAChunkThatWaitsForItsOwnRank) {
  Schedule s;
  s.vp = 2;
  s.ranks = {{{ActionKind::kForward, 1, 0},
              {ActionKind::kForward, 0, 0},
              {ActionKind::kBackward, 1, 0},
              {ActionKind::kBackward, 0, 0}}};
  EXPECT_TRUE(says(error_of(s), {"forward of chunk 1", "deadlock"}));
}

}  // namespace
}  // namespace copus
