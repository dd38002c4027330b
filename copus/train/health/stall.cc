#include "copus/train/health/stall.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace copus {
namespace {

Seconds time_of_ticks(std::uint64_t count) { return static_cast<double>(count) * Activity::kTick; }

bool stuck(const RankActivity& rank, Seconds still) {
  return !waits_for_others(rank.doing) && time_of_ticks(rank.still) >= still;
}

// If some ranks are silent, keeps only those: the others wait for them.
std::vector<Stall> silent_or_all(std::vector<Stall> stalls) {
  const auto is_silent = [](const Stall& stall) { return stall.silent; };
  if (std::any_of(stalls.begin(), stalls.end(), is_silent)) {
    std::erase_if(stalls, [&](const Stall& stall) { return !is_silent(stall); });
  }
  return stalls;
}

}  // namespace

std::vector<int> ranks_to_watch(int world_size, const std::vector<int>& concerned) {
  std::vector<int> ranks;
  if (world_size <= kMaxWatched) {
    ranks.resize(static_cast<std::size_t>(world_size));
    std::iota(ranks.begin(), ranks.end(), 0);
  } else {
    const auto count = std::min<std::size_t>(concerned.size(), kMaxWatched);
    ranks.assign(concerned.begin(), concerned.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return ranks;
}

std::vector<Stall> stalled_ranks(const std::vector<RankActivity>& before,
                                 const std::vector<RankActivity>& after, Seconds still) {
  std::vector<Stall> stalls;
  for (const RankActivity& now : after) {
    const auto earlier = std::find_if(before.begin(), before.end(),
                                      [&](const RankActivity& b) { return b.rank == now.rank; });
    if (earlier == before.end() || now.over) continue;
    // A silent rank stopped counting now.still when it fell silent, so its time is computed below.
    if (earlier->ticks == now.ticks && earlier->changes == now.changes) {
      stalls.push_back({now, true, Seconds()});
    } else if (stuck(now, still)) {
      stalls.push_back({now, false, time_of_ticks(now.still)});
    }
  }
  // All ranks began to tick at about the same time. So a silent rank has been silent for as many
  // ticks as it is behind the rank with the most ticks.
  std::uint64_t most = 0;
  for (const RankActivity& now : after) most = std::max(most, now.ticks);
  for (Stall& stall : stalls) {
    if (stall.silent) {
      stall.still = time_of_ticks(most - stall.rank.ticks);
    }
  }
  return silent_or_all(std::move(stalls));
}

std::vector<Stall> stalled_before_the_end(const std::vector<RankActivity>& all, Seconds still) {
  std::uint64_t most = 0;
  for (const RankActivity& rank : all) most = std::max(most, rank.ticks);
  std::vector<Stall> stalls;
  for (const RankActivity& rank : all) {
    const Seconds silent = time_of_ticks(most - rank.ticks);
    if (rank.over) continue;
    if (silent >= still) {
      stalls.push_back({rank, true, silent});
    } else if (stuck(rank, still)) {
      stalls.push_back({rank, false, time_of_ticks(rank.still)});
    }
  }
  return silent_or_all(std::move(stalls));
}

std::string place_of(const RankActivity& rank) {
  return rank.step > 0 ? fmt::format("{} of step {}", rank.text, rank.step) : rank.text;
}

std::string to_text(const std::vector<Stall>& stalls) {
  std::string text;
  for (const Stall& stall : stalls) {
    if (!text.empty()) text += "; ";
    const std::string place = place_of(stall.rank);
    text += stall.silent ? fmt::format("rank {} has been silent for {:.0f} s, {}", stall.rank.rank,
                                       stall.still.v, place)
                         : fmt::format("rank {} has been {} for {:.0f} s", stall.rank.rank, place,
                                       stall.still.v);
  }
  return text;
}

}  // namespace copus
