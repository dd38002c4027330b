// Builds pipeline schedules, and derives properties such as peak activations from a schedule.
#include "copus/spec/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace copus {
namespace {

// Limits the memory that a schedule can take to about 400 MB of actions.
constexpr std::int64_t kMaxForwards = std::int64_t{1} << 24;

// Appends actions to the list of one rank.
struct RankWriter {
  std::vector<Action>& actions;
  std::int32_t rank;

  void add(ActionKind kind, std::int32_t chunk, std::int32_t micro_batch) {
    actions.push_back({kind, chunk, micro_batch});
  }
};

// GPipe (Huang et al. 2019): all forwards, then all backwards. Backwards run in the order of the
// forwards; the reverse order would take as long and hold as much.
void write_gpipe(RankWriter out, const Schedule& s) {
  for (std::int32_t i = 0; i < s.micro_batches; ++i) out.add(ActionKind::kForward, out.rank, i);
  for (std::int32_t i = 0; i < s.micro_batches; ++i) out.add(ActionKind::kBackward, out.rank, i);
}

// 1F1B (PipeDream-Flush, Narayanan et al. 2021, arXiv 2104.04473): enough forwards to reach the
// last rank, then one forward and one backward in turn, then the remaining backwards.
void write_1f1b(RankWriter out, const Schedule& s) {
  const std::int32_t m = s.micro_batches;
  const std::int32_t warm_up = std::min(s.pp - out.rank - 1, m);
  for (std::int32_t i = 0; i < warm_up; ++i) out.add(ActionKind::kForward, out.rank, i);
  for (std::int32_t i = 0; i < m; ++i) {
    if (i + warm_up < m) out.add(ActionKind::kForward, out.rank, i + warm_up);
    out.add(ActionKind::kBackward, out.rank, i);
  }
}

// ZB-H1 (Qi et al. 2023, arXiv 2401.10241): 1F1B with the backward split. Rank r delays the weight
// part by r micro-batches, so that gradients leave the last rank early. Every rank holds at most
// the pp activations that 1F1B holds on rank 0.
void write_zero_bubble(RankWriter out, const Schedule& s) {
  const std::int32_t m = s.micro_batches;
  const std::int32_t warm_up = std::min(s.pp - out.rank - 1, m);
  const std::int32_t delay = std::min(out.rank, m);
  for (std::int32_t i = 0; i < warm_up; ++i) out.add(ActionKind::kForward, out.rank, i);
  for (std::int32_t i = 0; i < m; ++i) {
    if (i + warm_up < m) out.add(ActionKind::kForward, out.rank, i + warm_up);
    out.add(ActionKind::kBackwardInput, out.rank, i);
    if (i >= delay) out.add(ActionKind::kBackwardWeight, out.rank, i - delay);
  }
  for (std::int32_t i = m - delay; i < m; ++i) out.add(ActionKind::kBackwardWeight, out.rank, i);
}

// Interleaved 1F1B (arXiv 2104.04473, section 2.2) in Megatron-LM's order. Micro-batches go through
// a rank's chunks in groups of pp; backwards take the chunks in reverse order. The warm-up has two
// forwards for each later rank, plus one group for every chunk except the last.
void write_interleaved(RankWriter out, const Schedule& s) {
  const std::int32_t group = s.pp * s.vp;
  const std::int32_t total = s.micro_batches * s.vp;
  const std::int32_t warm_up = std::min((s.pp - out.rank - 1) * 2 + (s.vp - 1) * s.pp, total);
  const auto micro_batch = [&](std::int32_t k) { return k / group * s.pp + k % s.pp; };
  const auto forward = [&](std::int32_t k) {
    const std::int32_t local = k % group / s.pp;
    out.add(ActionKind::kForward, local * s.pp + out.rank, micro_batch(k));
  };
  const auto backward = [&](std::int32_t k) {
    const std::int32_t local = s.vp - 1 - k % group / s.pp;
    out.add(ActionKind::kBackward, local * s.pp + out.rank, micro_batch(k));
  };
  for (std::int32_t k = 0; k < warm_up; ++k) forward(k);
  for (std::int32_t k = 0; k < total; ++k) {
    if (k + warm_up < total) forward(k + warm_up);
    backward(k);
  }
}

Result<void> check_shape(ScheduleKind kind, std::int64_t pp, std::int64_t vp, std::int64_t m) {
  const auto positive = [](const char* field, std::int64_t value) -> Result<void> {
    if (value < 1 || value > kMaxForwards) {
      return field_error(field, "got {}; want 1 to {}", value, kMaxForwards);
    }
    return {};
  };
  COPUS_TRY_VOID(positive("pp", pp));
  COPUS_TRY_VOID(positive("vp", vp));
  COPUS_TRY_VOID(positive("micro_batches", m));
  if (pp * vp > kMaxForwards || pp * vp * m > kMaxForwards) {
    return field_error("pp*vp*micro_batches", "got {}*{}*{}; want at most {}", pp, vp, m,
                       kMaxForwards);
  }
  if (kind == ScheduleKind::kInterleaved) {
    if (vp < 2) return field_error("vp", "got {}; want 2 or more for the interleaved schedule", vp);
    if (m % pp != 0) {
      return field_error("micro_batches",
                         "got {}; want a multiple of pp={} for the interleaved schedule", m, pp);
    }
  } else if (vp != 1) {
    return field_error("vp", "got {}; want 1 unless the schedule is interleaved", vp);
  }
  return {};
}

}  // namespace

Result<Schedule> make_schedule(ScheduleKind kind, std::int64_t pp, std::int64_t vp,
                               std::int64_t micro_batches) {
  COPUS_TRY_VOID(check_shape(kind, pp, vp, micro_batches));
  Schedule s;
  s.kind = kind;
  s.pp = static_cast<std::int32_t>(pp);
  s.vp = static_cast<std::int32_t>(vp);
  s.micro_batches = static_cast<std::int32_t>(micro_batches);
  s.ranks.resize(static_cast<std::size_t>(pp));
  const std::int64_t parts = kind == ScheduleKind::kZeroBubble ? 3 : 2;
  for (std::int32_t rank = 0; rank < s.pp; ++rank) {
    RankWriter out{s.ranks[static_cast<std::size_t>(rank)], rank};
    out.actions.reserve(static_cast<std::size_t>(parts * vp * micro_batches));
    switch (kind) {
      case ScheduleKind::kGPipe:
        write_gpipe(out, s);
        break;
      case ScheduleKind::k1F1B:
        write_1f1b(out, s);
        break;
      case ScheduleKind::kInterleaved:
        write_interleaved(out, s);
        break;
      case ScheduleKind::kZeroBubble:
        write_zero_bubble(out, s);
        break;
    }
  }
  return s;
}

// With a split backward, the weight part frees the activation, because it needs the activation too.
std::vector<std::int64_t> peak_activations(const Schedule& schedule) {
  std::vector<std::int64_t> peaks;
  peaks.reserve(schedule.ranks.size());
  for (const std::vector<Action>& actions : schedule.ranks) {
    std::int64_t held = 0;
    std::int64_t peak = 0;
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kForward) peak = std::max(peak, ++held);
      if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) {
        --held;
      }
    }
    peaks.push_back(peak);
  }
  return peaks;
}

// Visits all actions in an order in which they can run, and records for each action the last action
// of `rank` that it depends on.
std::vector<bool> arrives_early(const Schedule& schedule, std::int32_t rank) {
  constexpr std::int32_t kNotRun = -2;
  constexpr std::int32_t kNone = -1;
  const std::size_t rows = schedule.ranks.size();
  const auto cells = static_cast<std::size_t>(schedule.chunks() * schedule.micro_batches);
  std::vector<std::int32_t> forward(cells, kNotRun), backward(cells, kNotRun);
  const auto sent = [&](const Action& action, std::int32_t chunk) -> std::int32_t& {
    auto& row = action.kind == ActionKind::kForward ? forward : backward;
    return row[static_cast<std::size_t>(chunk * schedule.micro_batches + action.micro_batch)];
  };
  std::vector<bool> early(schedule.ranks[static_cast<std::size_t>(rank)].size(), false);
  std::vector<std::size_t> next(rows, 0);
  // The last action of `rank` that the actions run so far on each rank depend on.
  std::vector<std::int32_t> needs(rows, kNone);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < rows; ++r) {
      for (; next[r] < schedule.ranks[r].size(); ++next[r], moved = true) {
        const Action& action = schedule.ranks[r][next[r]];
        const bool is_forward = action.kind == ActionKind::kForward;
        const std::int32_t from = action.chunk + (is_forward ? -1 : 1);
        const bool takes_message =
            action.kind != ActionKind::kBackwardWeight && from >= 0 && from < schedule.chunks();
        const auto index = static_cast<std::int32_t>(next[r]);
        const bool own = static_cast<std::int32_t>(r) == rank;
        if (takes_message) {
          const std::int32_t message = sent(action, from);
          if (message == kNotRun) break;
          if (own) early[next[r]] = message < index - 1;
          needs[r] = std::max(needs[r], message);
        }
        if (own) needs[r] = index;
        if (action.kind != ActionKind::kBackwardWeight) sent(action, action.chunk) = needs[r];
      }
    }
  }
  return early;
}

// F is a forward, B a backward, I and W its input and weight parts; the number is the micro-batch.
// If ranks hold several chunks, ".c" and the chunk follow.
std::string to_text(const Schedule& schedule) {
  std::string text;
  const auto out = std::back_inserter(text);
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    fmt::format_to(out, "rank {}:", rank);
    for (const Action& action : schedule.ranks[rank]) {
      constexpr char kLetters[] = {'F', 'B', 'I', 'W'};
      fmt::format_to(out, " {}{}", kLetters[static_cast<std::size_t>(action.kind)],
                     action.micro_batch);
      if (schedule.vp > 1) fmt::format_to(out, ".c{}", action.chunk);
    }
    text += '\n';
  }
  return text;
}

}  // namespace copus
