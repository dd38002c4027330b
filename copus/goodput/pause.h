// Predicts the time to move a run's state between two layouts.
#pragma once

#include "copus/goodput/configuration.h"
#include "copus/spec/cluster_spec.h"

namespace copus {

struct StateBytes {
  double value = 2;       // per parameter: the weight that the model computes with
  double optimizer = 12;  // master weight and both moments
};

// The time of the rank that receives most: the bytes that it does not hold, over its share of the
// link; a copy of all that it will hold; and the fixed cost of the groups. Layers and slices are
// compared GPU by GPU. Embedding and head count as spread over the layers, and experts are assumed
// to overlap as much as possible.
Seconds predict_pause(const ModelSpec& model, const ClusterSpec& cluster, const StateBytes& state,
                      const Configuration& from, const Configuration& to);

}  // namespace copus
