// How many layers each model chunk (pipeline stage, or virtual stage) holds.
#pragma once

#include <cstdint>
#include <vector>

namespace copus {

// Where an engine cuts a model into pipeline chunks when the plan has no split.
enum class StageCut {
  kLayers,  // between layers, the same number each
  kWork,    // anywhere, so that chunks take the same time: graphs of operators, cut by work
};

// A split over chunks in four numbers, so that a search needs no list: the first chunk, the last,
// and `middle` layers on each of the others, except that the last `thinner` of them have one less.
struct StageSplit {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t middle = 0;
  std::int64_t thinner = 0;
  bool by_work = false;  // cut inside layers instead: the numbers say nothing

  friend bool operator==(const StageSplit&, const StageSplit&) = default;
};

// The split that makes the slowest chunk fastest when the first carries `first_extra` and the last
// `last_extra` layers' worth of other work (embedding; head and loss). With one chunk, first and
// last are the same, of all layers. O(1).
StageSplit balance_chunks(std::int64_t layers, std::int64_t chunks, double first_extra,
                          double last_extra) noexcept;

// The same number of layers each. REQUIRES: chunks divides layers.
StageSplit equal_split(std::int64_t layers, std::int64_t chunks) noexcept;

// Layers of chunk `index`. O(1).
std::int64_t layers_of_chunk(const StageSplit& split, std::int64_t chunks,
                             std::int64_t index) noexcept;

// As a list.
std::vector<std::int64_t> expand(const StageSplit& split, std::int64_t chunks);

}  // namespace copus
