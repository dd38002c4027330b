// The cluster that a run is on, as the cost model wants it: measured on CPUs, from the catalog on
// GPUs.
#pragma once

#include "copus/cost/framework.h"
#include "copus/spec/cluster_spec.h"
#include "copus/train/engine/layout.h"

namespace copus {

// What a rank's share of the CPUs is called in a cluster that was measured here.
constexpr const char* kMeasuredRank = "CPU rank";

// Every rank calls this; all get the same. On CPUs all ranks measure at once, as they will compute
// at once: a layer of this model at two sizes, memory, messages between all of them; about a
// second. On GPUs: the catalog's entry for this GPU; an error names --cluster where it has none.
Result<ClusterSpec> this_cluster(const Comm& world, const LayoutOptions& run);

// What the cost model says of one layer of the run's model, forward and backward, on so many rows.
Seconds predicted_layer(const ClusterSpec& cluster, const LayoutOptions& run, std::int64_t rows,
                        std::int64_t seq_len);
// Sets rates and the cost of an operator so that the cost model gives the layer's measured time at
// both numbers of rows: what grows with the rows is arithmetic and memory, the rest is operators.
void calibrate(ClusterSpec& cluster, const LayoutOptions& run, std::int64_t seq_len,
               const Seconds (&measured)[2], const std::int64_t (&rows)[2]);

// Of this node.
Bytes host_memory();

}  // namespace copus
