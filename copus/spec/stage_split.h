// Splits the layers of a model over chunks (pipeline stages or virtual stages).
#pragma once

#include <cstdint>
#include <vector>

namespace copus {

// Where an engine cuts a model into pipeline chunks when the plan has no split.
enum class StageCut {
  kLayers,  // between layers, so that all chunks have the same number
  kWork,    // between operators, even inside layers, so that all chunks take the same time
};

// A split over chunks in four numbers, so that a search needs no list: the layers of the first
// chunk, of the last chunk, and `middle` for each chunk between, except that the last `thinner` of
// these have one layer less.
struct StageSplit {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t middle = 0;
  std::int64_t thinner = 0;
  bool by_work = false;  // true: the engine cuts inside layers, and the numbers have no meaning

  friend bool operator==(const StageSplit&, const StageSplit&) = default;
};

// Returns the split that makes the slowest chunk fastest. The first chunk has other work
// (embedding) worth `first_extra` layers, and the last chunk has other work (head and loss) worth
// `last_extra` layers. With one chunk, `first`, `last` and `middle` are all layers. O(1).
StageSplit balance_chunks(std::int64_t layers, std::int64_t chunks, double first_extra,
                          double last_extra) noexcept;

// Returns the split with the same number of layers in all chunks. REQUIRES: `chunks` divides
// `layers`.
StageSplit equal_split(std::int64_t layers, std::int64_t chunks) noexcept;

// Returns the layers of chunk `index`. O(1).
std::int64_t layers_of_chunk(const StageSplit& split, std::int64_t chunks,
                             std::int64_t index) noexcept;

// Returns the layers of all chunks before chunk `index`. O(1).
std::int64_t layers_before_chunk(const StageSplit& split, std::int64_t chunks,
                                 std::int64_t index) noexcept;

// Returns the layers of all chunks as a list.
std::vector<std::int64_t> expand(const StageSplit& split, std::int64_t chunks);

}  // namespace copus
