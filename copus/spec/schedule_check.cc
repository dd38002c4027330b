// Implements check_schedule(). It checks completeness first, then matched messages, then deadlock,
// so that the error names the simplest fault. Sends never block; a rank waits only for what its
// next action needs.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "copus/spec/schedule.h"

namespace copus {
namespace {

std::string describe(const Action& action) {
  const char* kind = "unknown action";
  switch (action.kind) {
    case ActionKind::kForward:
      kind = "forward";
      break;
    case ActionKind::kBackward:
      kind = "backward";
      break;
    case ActionKind::kBackwardInput:
      kind = "input backward";
      break;
    case ActionKind::kBackwardWeight:
      kind = "weight backward";
      break;
  }
  return fmt::format("{} of chunk {}, micro-batch {}", kind, action.chunk, action.micro_batch);
}

// The parts of the work on one chunk and micro-batch. A fused backward does the input part and the
// weight part.
using Parts = std::uint8_t;
constexpr Parts kForwardPart = 1;
constexpr Parts kInputPart = 2;
constexpr Parts kWeightPart = 4;
constexpr Parts kAllParts = kForwardPart | kInputPart | kWeightPart;

Parts parts_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return kForwardPart;
    case ActionKind::kBackward:
      return kInputPart | kWeightPart;
    case ActionKind::kBackwardInput:
      return kInputPart;
    case ActionKind::kBackwardWeight:
      return kWeightPart;
  }
  return 0;
}

// Returns the parts that the same rank must have done before.
Parts needs_of(ActionKind kind) {
  if (kind == ActionKind::kForward) return 0;
  return kind == ActionKind::kBackwardWeight ? kForwardPart | kInputPart : kForwardPart;
}

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : s_(schedule) {}

  Result<void> run() {
    COPUS_TRY_VOID(check_shape());
    COPUS_TRY_VOID(check_places());
    COPUS_TRY_VOID(check_nothing_missing());
    COPUS_TRY_VOID(check_order_on_rank());
    for (std::int32_t rank = 0; rank < s_.pp && s_.pp > 1; ++rank) {
      COPUS_TRY_VOID(check_channel(rank, (rank + 1) % s_.pp, true));
      COPUS_TRY_VOID(check_channel(rank, (rank + s_.pp - 1) % s_.pp, false));
    }
    return check_progress();
  }

 private:
  std::size_t cell(std::int32_t chunk, std::int32_t micro_batch) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(s_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }
  std::size_t cell(const Action& a) const { return cell(a.chunk, a.micro_batch); }

  const std::vector<Action>& actions(std::int32_t rank) const {
    return s_.ranks[static_cast<std::size_t>(rank)];
  }

  // Also ensures that later checks allocate no more memory than the actions justify.
  Result<void> check_shape() {
    if (s_.pp < 1 || s_.vp < 1 || s_.micro_batches < 1) {
      return field_error("pp, vp, micro_batches", "got {}, {}, {}; want 1 or more each", s_.pp,
                         s_.vp, s_.micro_batches);
    }
    if (s_.ranks.size() != static_cast<std::size_t>(s_.pp)) {
      return field_error("ranks", "got {} lists of actions; want pp={}", s_.ranks.size(), s_.pp);
    }
    std::int64_t total = 0;
    for (const auto& rank : s_.ranks) total += static_cast<std::int64_t>(rank.size());
    const std::int64_t chunks = std::int64_t{s_.pp} * s_.vp;
    if (total / chunks < s_.micro_batches) {
      return field_error("actions",
                         "got {}; want 2 or more for each of {} chunks and {} micro-batches", total,
                         chunks, s_.micro_batches);
    }
    done_.assign(static_cast<std::size_t>(chunks * s_.micro_batches), 0);
    return {};
  }

  Result<void> check_places() {
    for (std::int32_t rank = 0; rank < s_.pp; ++rank) {
      for (const Action& a : actions(rank)) {
        if (parts_of(a.kind) == 0 || a.chunk < 0 || a.chunk >= s_.chunks() || a.micro_batch < 0 ||
            a.micro_batch >= s_.micro_batches) {
          return make_error("rank {}: {}: want chunks below {} and micro-batches below {}", rank,
                            describe(a), s_.chunks(), s_.micro_batches);
        }
        if (s_.rank_of_chunk(a.chunk) != rank) {
          return make_error("rank {}: {}: belongs on rank {}", rank, describe(a),
                            s_.rank_of_chunk(a.chunk));
        }
        Parts& done = done_[cell(a)];
        if ((done & parts_of(a.kind)) != 0) {
          return make_error("rank {}: {}: done twice", rank, describe(a));
        }
        done = static_cast<Parts>(done | parts_of(a.kind));
      }
    }
    return {};
  }

  Result<void> check_nothing_missing() {
    for (std::int32_t chunk = 0; chunk < s_.chunks(); ++chunk) {
      for (std::int32_t i = 0; i < s_.micro_batches; ++i) {
        const Parts done = done_[cell(chunk, i)];
        if (done == kAllParts) continue;
        ActionKind missing = ActionKind::kBackwardWeight;
        if ((done & kWeightPart) != 0) missing = ActionKind::kBackwardInput;
        if ((done & (kInputPart | kWeightPart)) == 0) missing = ActionKind::kBackward;
        if ((done & kForwardPart) == 0) missing = ActionKind::kForward;
        return make_error("rank {}: {}: missing", s_.rank_of_chunk(chunk),
                          describe({missing, chunk, i}));
      }
    }
    return {};
  }

  Result<void> check_order_on_rank() {
    done_.assign(done_.size(), 0);
    for (std::int32_t rank = 0; rank < s_.pp; ++rank) {
      for (const Action& a : actions(rank)) {
        Parts& done = done_[cell(a)];
        const Parts needs = needs_of(a.kind);
        if ((done & needs) != needs) {
          return make_error("rank {}: {}: comes before its {}", rank, describe(a),
                            (done & kForwardPart) == 0 ? "forward" : "input backward");
        }
        done = static_cast<Parts>(done | parts_of(a.kind));
      }
    }
    return {};
  }

  bool is_forward(const Action& a) const { return a.kind == ActionKind::kForward; }
  bool is_gradient(const Action& a) const {
    return a.kind == ActionKind::kBackward || a.kind == ActionKind::kBackwardInput;
  }
  // Returns the chunk that `a` sends its result to, or -1.
  std::int32_t destination(const Action& a) const {
    if (is_forward(a)) return a.chunk + 1 < s_.chunks() ? a.chunk + 1 : -1;
    return is_gradient(a) ? a.chunk - 1 : -1;
  }
  // Returns the chunk that `a` needs a result from, or -1.
  std::int32_t source(const Action& a) const {
    if (is_forward(a)) return a.chunk - 1;
    return is_gradient(a) && a.chunk + 1 < s_.chunks() ? a.chunk + 1 : -1;
  }

  // Chunks are dealt to the ranks in turn, so a rank sends all activations to one neighbour and all
  // gradients to one neighbour. Walking the lists of sender and receiver side by side therefore
  // visits every message of the channel.
  Result<void> check_channel(std::int32_t from, std::int32_t to, bool forward) {
    const auto on_channel = [&](const Action& a) {
      return forward ? is_forward(a) : is_gradient(a);
    };
    const std::vector<Action>& receiver = actions(to);
    std::size_t next = 0;
    for (const Action& sent : actions(from)) {
      if (!on_channel(sent) || destination(sent) < 0) continue;
      while (next < receiver.size() &&
             (!on_channel(receiver[next]) || source(receiver[next]) < 0)) {
        ++next;
      }
      COPUS_CHECK(next < receiver.size());  // a complete schedule receives as many as it sends
      const Action& received = receiver[next++];
      if (received.chunk != destination(sent) || received.micro_batch != sent.micro_batch) {
        return make_error("rank {} to rank {}: {} is sent next, but {} is received next", from, to,
                          describe(sent), describe(received));
      }
    }
    return {};
  }

  // Runs the schedule without times: each rank runs its next action as soon as it can.
  Result<void> check_progress() {
    done_.assign(done_.size(), 0);
    std::vector<std::size_t> next(s_.ranks.size(), 0);
    std::vector<std::int32_t> ready;
    for (std::int32_t rank = s_.pp - 1; rank >= 0; --rank) ready.push_back(rank);
    while (!ready.empty()) {
      const std::int32_t rank = ready.back();
      ready.pop_back();
      std::size_t& i = next[static_cast<std::size_t>(rank)];
      for (; i < actions(rank).size() && can_run(actions(rank)[i]); ++i) {
        const Action& a = actions(rank)[i];
        done_[cell(a)] = static_cast<Parts>(done_[cell(a)] | parts_of(a.kind));
        const std::int32_t chunk = destination(a);
        if (chunk >= 0 && s_.rank_of_chunk(chunk) != rank) {
          ready.push_back(s_.rank_of_chunk(chunk));
        }
      }
    }
    for (std::int32_t rank = 0; rank < s_.pp; ++rank) {
      const std::size_t i = next[static_cast<std::size_t>(rank)];
      if (i == actions(rank).size()) continue;
      const Action& stuck = actions(rank)[i];
      return make_error("rank {}: {}: waits for chunk {} on rank {}, which waits in turn: deadlock",
                        rank, describe(stuck), source(stuck), s_.rank_of_chunk(source(stuck)));
    }
    return {};
  }

  bool can_run(const Action& a) const {
    const std::int32_t chunk = source(a);
    if (chunk < 0) return true;
    const Parts wanted = is_forward(a) ? kForwardPart : kInputPart;
    return (done_[cell(chunk, a.micro_batch)] & wanted) != 0;
  }

  const Schedule& s_;
  std::vector<Parts> done_;  // by chunk and micro-batch
};

}  // namespace

Result<void> check_schedule(const Schedule& schedule) { return Checker(schedule).run(); }

}  // namespace copus
