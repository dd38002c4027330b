#include "copus/cost/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>

namespace copus {
namespace {

Schedule make(ScheduleKind kind, std::int64_t pp, std::int64_t vp, std::int64_t micro_batches) {
  return make_schedule(kind, pp, vp, micro_batches).value();
}

PipelineTimes equal_chunks(const Schedule& s, ChunkTimes chunk, Seconds hop) {
  return {std::vector<ChunkTimes>(static_cast<std::size_t>(s.chunks()), chunk), hop};
}

// Neighbouring chunks take different times.
PipelineTimes uneven_chunks(const Schedule& s, Seconds hop) {
  PipelineTimes times;
  for (std::int32_t i = 0; i < s.chunks(); ++i) {
    const double scale = 1 + 0.37 * ((i * 7) % 5);
    times.chunks.push_back({Seconds(scale), Seconds(1.2 * scale), Seconds(0.7 * scale)});
  }
  times.hop = hop;
  return times;
}

std::vector<Schedule> some_schedules() {
  std::vector<Schedule> all;
  for (const std::int64_t pp : {1, 2, 3, 5, 8}) {
    for (const std::int64_t m : {1, 4, 13}) {
      all.push_back(make(ScheduleKind::kGPipe, pp, 1, m));
      all.push_back(make(ScheduleKind::k1F1B, pp, 1, m));
      all.push_back(make(ScheduleKind::kZeroBubble, pp, 1, m));
    }
    for (const std::int64_t vp : {2, 3}) {
      all.push_back(make(ScheduleKind::kInterleaved, pp, vp, 2 * pp));
    }
  }
  return all;
}

TEST(Timeline, OfTwoUnevenRanksIsTheOneDrawnByHand) {
  const Schedule s = make(ScheduleKind::k1F1B, 2, 1, 2);
  const PipelineTimes times{
      {{Seconds(1), Seconds(2), Seconds(1)}, {Seconds(2), Seconds(3), Seconds(1)}}, Seconds(0.5)};
  // rank 0: F0 0-1, F1 1-2, B0 8-11 (7.5 + hop), B1 14-17
  // rank 1: F0 1.5-3.5, B0 3.5-7.5, F1 7.5-9.5, B1 9.5-13.5
  const Timeline t = run_timeline(s, times);
  const auto starts = [&](std::size_t rank) {
    std::vector<double> v;
    for (const TimedAction& a : t.ranks[rank]) v.push_back(a.start.v);
    return v;
  };
  EXPECT_EQ(starts(0), (std::vector<double>{0, 1, 8, 14}));
  EXPECT_EQ(starts(1), (std::vector<double>{1.5, 3.5, 7.5, 9.5}));
  EXPECT_EQ(t.total, Seconds(17));
  EXPECT_EQ(t.last_backward_end, (std::vector<Seconds>{Seconds(17), Seconds(13.5)}));
  EXPECT_EQ(t.busy, (std::vector<Seconds>{Seconds(8), Seconds(12)}));
}

TEST(Timeline, KeepsTheScheduleAndNeverOverlapsActionsOfARank) {
  for (const Schedule& s : some_schedules()) {
    const Timeline t = run_timeline(s, uneven_chunks(s, Seconds(0.3)));
    ASSERT_EQ(t.ranks.size(), s.ranks.size());
    Seconds latest;
    for (std::size_t rank = 0; rank < s.ranks.size(); ++rank) {
      ASSERT_EQ(t.ranks[rank].size(), s.ranks[rank].size());
      Seconds free;
      Seconds busy;
      for (std::size_t i = 0; i < s.ranks[rank].size(); ++i) {
        const TimedAction& timed = t.ranks[rank][i];
        EXPECT_EQ(timed.action, s.ranks[rank][i]);
        EXPECT_GE(timed.start, free);
        EXPECT_GT(timed.end, timed.start);
        free = timed.end;
        busy += timed.end - timed.start;
      }
      EXPECT_NEAR(t.busy[rank].v, busy.v, 1e-9);
      EXPECT_EQ(t.last_backward_end[rank], free);
      latest = max(latest, free);
    }
    EXPECT_EQ(t.total, latest);
  }
}

// Every action starts at the earliest time that its rank and its input allow.
TEST(Timeline, StartsAsSoonAsRankAndInputAllow) {
  for (const Schedule& s : some_schedules()) {
    const Seconds hop(0.3);
    const Timeline t = run_timeline(s, uneven_chunks(s, hop));
    std::map<std::tuple<bool, std::int32_t, std::int32_t>, Seconds> ends;  // forward?, chunk, micro
    for (const auto& rank : t.ranks) {
      for (const TimedAction& a : rank) {
        if (a.action.kind == ActionKind::kBackwardWeight) continue;
        const bool forward = a.action.kind == ActionKind::kForward;
        ends[{forward, a.action.chunk, a.action.micro_batch}] = a.end;
      }
    }
    for (const auto& rank : t.ranks) {
      Seconds free;
      for (const TimedAction& a : rank) {
        const bool forward = a.action.kind == ActionKind::kForward;
        const std::int32_t from = a.action.chunk + (forward ? -1 : 1);
        Seconds expected = free;
        if (from >= 0 && from < s.chunks() && a.action.kind != ActionKind::kBackwardWeight) {
          const Seconds made = ends.at({forward, from, a.action.micro_batch});
          expected = max(expected, made + (s.pp > 1 ? hop : Seconds(0)));
        }
        EXPECT_EQ(a.start, expected);
        free = a.end;
      }
    }
  }
}

TEST(Timeline, OneRankIsBusyAllTheTimeWhateverTheHop) {
  for (const ScheduleKind kind :
       {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubble}) {
    const Schedule s = make(kind, 1, 1, 5);
    const Timeline t =
        run_timeline(s, equal_chunks(s, {Seconds(1), Seconds(1), Seconds(1)}, Seconds(100)));
    EXPECT_EQ(t.total, Seconds(15));
  }
  const Schedule s = make(ScheduleKind::kInterleaved, 1, 3, 5);
  EXPECT_EQ(
      run_timeline(s, equal_chunks(s, {Seconds(1), Seconds(1), Seconds(1)}, Seconds(100))).total,
      Seconds(45));
}

TEST(Timeline, SplittingTheBackwardShortensThePipeline) {
  const ChunkTimes chunk{Seconds(1), Seconds(1), Seconds(1)};
  const Schedule fused = make(ScheduleKind::k1F1B, 8, 1, 32);
  const Schedule split = make(ScheduleKind::kZeroBubble, 8, 1, 32);
  const Seconds with = run_timeline(split, equal_chunks(split, chunk, Seconds(0))).total;
  const Seconds without = run_timeline(fused, equal_chunks(fused, chunk, Seconds(0))).total;
  // The bubbles are (p-1)(F+I-W) and (p-1)(F+B); the first is a third of the second.
  EXPECT_NEAR(with.v - 96, (without.v - 96) / 3, 1e-9);
}

TEST(Timeline, TakesTheLargestPipelinesThatPredictMeets) {
  const Schedule s = make(ScheduleKind::kInterleaved, 64, 3, 1024);
  const Timeline t =
      run_timeline(s, equal_chunks(s, {Seconds(1), Seconds(1), Seconds(1)}, Seconds(0)));
  EXPECT_NEAR(t.total.v, (1024 * 3 + 63) * 3.0, 1e-6);
}

}  // namespace
}  // namespace copus
