#include "copus/spec/stage_split.h"

#include <algorithm>
#include <cmath>

#include "copus/base/check.h"

namespace copus {
namespace {

// Returns the whole layers that fit under `level` beside `extra`. The tolerance ensures that n
// layers fit under a level that was computed as n + extra.
std::int64_t capacity(double level, double extra) {
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(level - extra + 1e-9)));
}

// Limits an extra. With the limit of 1e7, an end gets no layers for any real model. Negative values
// and NaN become 0, because the comparison is false for both.
double sane_extra(double extra) { return extra > 0 ? std::min(extra, 1e7) : 0; }

// Returns the lowest level under which all layers fit, where a level is the load of a chunk in
// layers. Some chunk has exactly this load (n, n + first or n + last), so the first such levels
// above the mean are tried. One layer above the mean there is always room.
double best_level(std::int64_t layers, std::int64_t chunks, double first, double last) {
  auto room = [&](double level) {
    return capacity(level, first) + capacity(level, last) + (chunks - 2) * capacity(level, 0);
  };
  const double mean = (static_cast<double>(layers) + first + last) / static_cast<double>(chunks);
  const double floor_level = std::max({mean, first, last});
  double level = INFINITY;
  for (int step = 0; step <= 2 && !std::isfinite(level); ++step) {
    for (const double extra : {0.0, first, last}) {
      const double candidate = std::ceil(floor_level - extra - 1e-9) + extra + step;
      if (candidate < level && room(candidate) >= layers) level = candidate;
    }
  }
  COPUS_CHECK(std::isfinite(level));
  return level;
}

// Returns the layers of an end that carries `extra` of the `extras` in all. This is its share of
// the mean load, but at least `left_over`, and at most what `level` allows and what leaves one
// layer for each of the `inner` chunks.
std::int64_t fair_share(std::int64_t layers, std::int64_t chunks, std::int64_t inner, double extras,
                        double extra, double level, std::int64_t left_over) {
  const double mean = (static_cast<double>(layers) + extras) / static_cast<double>(chunks);
  const std::int64_t low = std::max<std::int64_t>(0, left_over);
  const std::int64_t high = std::min(layers - inner, capacity(level, extra));
  return std::clamp(capacity(mean, extra), low, std::max(low, high));
}

}  // namespace

StageSplit equal_split(std::int64_t layers, std::int64_t chunks) noexcept {
  const std::int64_t each = layers / chunks;
  return {each, each, each, 0};
}

StageSplit balance_chunks(std::int64_t layers, std::int64_t chunks, double first_extra,
                          double last_extra) noexcept {
  if (chunks <= 1) return {layers, layers, layers, 0};
  const double first = sane_extra(first_extra), last = sane_extra(last_extra);
  // Each end takes its fair share of the mean, but no more than fits under the best level, and no
  // less than the other chunks leave over. The last chunk is settled before the first. So the other
  // chunks stay even if one end alone is the bottleneck, and only an end, which has the embedding
  // or the head, can have no layers.
  StageSplit split;
  const double level = best_level(layers, chunks, first, last);
  split.last = fair_share(layers, chunks, chunks - 2, first + last, last, level,
                          layers - capacity(level, first) - (chunks - 2) * capacity(level, 0));
  const std::int64_t rest = layers - split.last;
  if (chunks == 2) {
    split.first = split.middle = rest;
    return split;
  }
  const double rest_level = best_level(rest, chunks - 1, first, 0);
  split.first = fair_share(rest, chunks - 1, chunks - 2, first, first, rest_level,
                           rest - (chunks - 2) * capacity(rest_level, 0));
  const std::int64_t inner = rest - split.first;
  split.middle = (inner + chunks - 3) / (chunks - 2);
  split.thinner = split.middle * (chunks - 2) - inner;
  return split;
}

std::int64_t layers_of_chunk(const StageSplit& split, std::int64_t chunks,
                             std::int64_t index) noexcept {
  if (index == 0) return split.first;
  if (index == chunks - 1) return split.last;
  return split.middle - (index >= chunks - 1 - split.thinner ? 1 : 0);
}

std::int64_t layers_before_chunk(const StageSplit& split, std::int64_t chunks,
                                 std::int64_t index) noexcept {
  if (index == 0) return 0;
  // The chunks from `thin` on, except the last one, have one layer less.
  const std::int64_t thin = chunks - 1 - split.thinner;
  return split.first + (index - 1) * split.middle - std::max<std::int64_t>(0, index - thin);
}

std::vector<std::int64_t> expand(const StageSplit& split, std::int64_t chunks) {
  std::vector<std::int64_t> layers;
  for (std::int64_t c = 0; c < chunks; ++c) layers.push_back(layers_of_chunk(split, chunks, c));
  return layers;
}

}  // namespace copus
