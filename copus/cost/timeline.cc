#include "copus/cost/timeline.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "copus/base/check.h"

namespace copus {
namespace {

// Marks an end that is not known yet.
constexpr double kUnknown = std::numeric_limits<double>::infinity();

Seconds duration(ActionKind kind, const ChunkTimes& times) {
  switch (kind) {
    case ActionKind::kForward:
      return times.forward;
    case ActionKind::kBackward:
      return times.backward();
    case ActionKind::kBackwardInput:
      return times.backward_input;
    case ActionKind::kBackwardWeight:
      return times.backward_weight;
  }
  return Seconds(0);
}

// Plays the schedule. Each rank advances until the input of its next action is missing; the rank
// that produces this input wakes it. A finished action wakes at most one rank, hence O(actions).
class Player {
 public:
  Player(const Schedule& schedule, const PipelineTimes& times)
      : schedule_(schedule),
        times_(times),
        hop_(schedule.pp > 1 ? times.hop : Seconds(0)),
        micro_batches_(static_cast<std::size_t>(schedule.micro_batches)),
        next_(schedule.ranks.size(), 0),
        queued_(schedule.ranks.size(), true) {
    const std::size_t cells = times.chunks.size() * micro_batches_;
    forward_end_.assign(cells, Seconds(kUnknown));
    backward_end_.assign(cells, Seconds(kUnknown));
  }

  Timeline play() {
    const std::size_t pp = schedule_.ranks.size();
    result_.ranks.resize(pp);
    result_.last_backward_end.resize(pp);
    result_.busy.resize(pp);
    std::vector<std::size_t> ready;
    for (std::size_t rank = 0; rank < pp; ++rank) {
      result_.ranks[rank].reserve(schedule_.ranks[rank].size());
      ready.push_back(pp - 1 - rank);
    }
    while (!ready.empty()) {
      const std::size_t rank = ready.back();
      ready.pop_back();
      queued_[rank] = false;
      advance(rank, ready);
    }
    for (std::size_t rank = 0; rank < pp; ++rank) {
      COPUS_CHECK(next_[rank] == schedule_.ranks[rank].size());
    }
    return std::move(result_);
  }

 private:
  std::size_t cell(std::int32_t chunk, std::int32_t micro_batch) const {
    return static_cast<std::size_t>(chunk) * micro_batches_ + static_cast<std::size_t>(micro_batch);
  }

  // Returns when the input of `action` from other ranks arrives; kUnknown if it is not produced
  // yet.
  Seconds arrival(const Action& action) const {
    const std::int32_t last = schedule_.chunks() - 1;
    switch (action.kind) {
      case ActionKind::kForward:
        if (action.chunk == 0) return Seconds(0);
        return forward_end_[cell(action.chunk - 1, action.micro_batch)] + hop_;
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        // The action's own forward is earlier on this rank, so only the gradient can be missing.
        if (action.chunk == last) return Seconds(0);
        return backward_end_[cell(action.chunk + 1, action.micro_batch)] + hop_;
      case ActionKind::kBackwardWeight:
        return Seconds(0);
    }
    return Seconds(0);
  }

  void advance(std::size_t rank, std::vector<std::size_t>& ready) {
    const std::vector<Action>& actions = schedule_.ranks[rank];
    std::vector<TimedAction>& timed = result_.ranks[rank];
    Seconds free = timed.empty() ? Seconds(0) : timed.back().end;
    for (std::size_t& i = next_[rank]; i < actions.size(); ++i) {
      const Action& action = actions[i];
      const Seconds arrived = arrival(action);
      if (arrived.v == kUnknown) return;
      const Seconds start = max(free, arrived);
      const Seconds taken =
          duration(action.kind, times_.chunks[static_cast<std::size_t>(action.chunk)]);
      free = start + taken;
      timed.push_back({action, start, free});
      result_.busy[rank] += taken;
      result_.total = max(result_.total, free);
      finish(rank, action, free, ready);
    }
  }

  void finish(std::size_t rank, const Action& action, Seconds end,
              std::vector<std::size_t>& ready) {
    std::int32_t consumer = -1;
    if (action.kind == ActionKind::kForward) {
      forward_end_[cell(action.chunk, action.micro_batch)] = end;
      if (action.chunk + 1 < schedule_.chunks()) consumer = action.chunk + 1;
    } else {
      result_.last_backward_end[rank] = end;
      if (action.kind != ActionKind::kBackwardWeight) {
        backward_end_[cell(action.chunk, action.micro_batch)] = end;
        consumer = action.chunk - 1;
      }
    }
    if (consumer < 0) return;
    const auto to = static_cast<std::size_t>(schedule_.rank_of_chunk(consumer));
    if (to != rank && !queued_[to]) {
      queued_[to] = true;
      ready.push_back(to);
    }
  }

  const Schedule& schedule_;
  const PipelineTimes& times_;
  const Seconds hop_;
  const std::size_t micro_batches_;
  std::vector<std::size_t> next_;
  std::vector<bool> queued_;
  std::vector<Seconds> forward_end_, backward_end_;  // by chunk and micro-batch
  Timeline result_;
};

}  // namespace

Timeline run_timeline(const Schedule& schedule, const PipelineTimes& times) {
  COPUS_CHECK(times.chunks.size() == static_cast<std::size_t>(schedule.chunks()));
  return Player(schedule, times).play();
}

}  // namespace copus
