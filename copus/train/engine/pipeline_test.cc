// Tests of the pipeline. Its limit on pending sends is not part of the schedule, so it must never
// stop a schedule.
#include "copus/train/engine/pipeline.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "copus/train/engine/test_training.h"

namespace copus {
namespace {

// Plays a schedule in which a rank goes on only while at most `limit` of its messages have not been
// received. Returns whether all actions were done.
bool completes(const Schedule& schedule, std::size_t limit) {
  using Channel = std::tuple<int, int, bool>;  // from, to, forward
  std::map<Channel, std::size_t> sent, taken;
  std::vector<std::size_t> next(schedule.ranks.size(), 0);
  std::vector<std::deque<std::pair<Channel, std::size_t>>> pending(schedule.ranks.size());
  const std::int32_t last = schedule.chunks() - 1;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      auto& mine = pending[rank];
      if (mine.size() > limit) {
        if (taken[mine.front().first] <= mine.front().second) continue;
        mine.pop_front();
        moved = true;
        continue;
      }
      if (next[rank] == schedule.ranks[rank].size()) continue;
      const Action& action = schedule.ranks[rank][next[rank]];
      const bool forward = action.kind == ActionKind::kForward;
      const int self = static_cast<int>(rank);
      if (action.chunk != (forward ? 0 : last)) {
        const Channel from{schedule.rank_of_chunk(action.chunk + (forward ? -1 : 1)), self,
                           forward};
        if (sent[from] <= taken[from]) continue;
        ++taken[from];
      }
      if (action.chunk != (forward ? last : 0)) {
        const Channel to{self, schedule.rank_of_chunk(action.chunk + (forward ? 1 : -1)), forward};
        mine.emplace_back(to, sent[to]++);
      }
      ++next[rank];
      moved = true;
    }
  }
  for (std::size_t rank = 0; rank < next.size(); ++rank) {
    if (next[rank] != schedule.ranks[rank].size()) return false;
  }
  return true;
}

TEST(PendingSends, TheBoundStopsNoSchedule) {
  for (const std::int64_t pp : {2, 3, 4, 8, 16}) {
    for (const std::int64_t vp : {1, 2, 3, 4}) {
      for (const std::int64_t rounds : {1, 2, 5, 12}) {
        for (const ScheduleKind kind :
             {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kInterleaved}) {
          if ((kind == ScheduleKind::kInterleaved) != (vp > 1)) continue;
          const Result<Schedule> schedule = make_schedule(kind, pp, vp, pp * rounds);
          ASSERT_TRUE(schedule.has_value()) << schedule.error().message;
          EXPECT_TRUE(completes(*schedule, max_pending_sends(pp, vp)))
              << to_string(kind) << " pp " << pp << " vp " << vp << " rounds " << rounds;
        }
      }
    }
  }
}

TEST(PendingSends, TheCheckSeesABoundThatIsTooSmall) {
  // If no send may be pending, the ring of an interleaved schedule waits for itself.
  const Result<Schedule> schedule = make_schedule(ScheduleKind::kInterleaved, 4, 2, 16);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_FALSE(completes(*schedule, 0));
}

TEST(LoadKernels, RunsWhereARestoreHasTurnedGradientsOff) {
  run_ranks(1, [](int, GroupCache& groups) {
    const TrainerOptions options = options_for("llama", {});
    const auto layout = Layout::create(groups, options, ParameterStart::kInitial);
    ASSERT_TRUE(layout.has_value()) << layout.error().message;
    const at::NoGradGuard no_grad;
    (*layout)->pipeline->load_kernels(kSeqLen);
    EXPECT_FALSE(at::GradMode::is_enabled());
  });
}

}  // namespace
}  // namespace copus
