// What moving a run's state between two layouts is predicted to take.
#pragma once

#include "copus/goodput/configuration.h"
#include "copus/spec/cluster_spec.h"

namespace copus {

struct StateBytes {
  double value = 2;       // per parameter: the weight that is computed with
  double optimizer = 12;  // master and both moments
};

// Of the rank that has most to receive: the bytes that it does not hold over its share of the link,
// a copy of all it will hold, and the groups' fixed cost. Layers and slices are compared GPU by
// GPU; embedding and head count as spread over the layers, and experts are taken to overlap as far
// as they can.
Seconds predict_pause(const ModelSpec& model, const ClusterSpec& cluster, const StateBytes& state,
                      const Configuration& from, const Configuration& to);

}  // namespace copus
