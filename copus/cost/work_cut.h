// A model cut into pipeline chunks of equal work, inside layers too: an idealisation of engines
// that cut graphs of operators (Alpa's clusters, arXiv 2201.12023; docs/cost-model.md).
//
// Pure functions; thread-safe.
#pragma once

#include <cstdint>

#include "copus/base/units.h"

namespace copus {

// A model's work in its order: embedding, dense layers, layers with experts, head and loss.
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

// What chunk `index` of `chunks` holds of the layers. The embedding and the head are whole, on the
// first and the last: one that is more than its share is alone there. O(1).
LayerShare cut_by_work(const ModelWork& work, std::int64_t chunks, std::int64_t index) noexcept;

}  // namespace copus
