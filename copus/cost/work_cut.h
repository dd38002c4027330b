// Cuts a model into pipeline chunks of equal work, also inside layers: an idealisation of engines
// that cut graphs of operators (Alpa's clusters, arXiv 2201.12023; docs/cost-model.md).
//
// Pure functions; thread-safe.
#pragma once

#include <cstdint>

#include "copus/base/units.h"

namespace copus {

// A model's work in model order: embedding, dense layers, layers with experts, head and loss.
struct ModelWork {
  Seconds embedding;
  double dense_layers = 0;
  Seconds dense_layer;
  double moe_layers = 0;
  Seconds moe_layer;
  Seconds head;
};

struct LayerShare {
  double dense_layers = 0;
  double moe_layers = 0;
};

// Returns the layers, and parts of layers, of chunk `index` of `chunks`. The embedding is always
// whole in the first chunk, the head in the last one. If one of them is longer than its share, its
// chunk has no layers. O(1).
LayerShare cut_by_work(const ModelWork& work, std::int64_t chunks, std::int64_t index) noexcept;

}  // namespace copus
