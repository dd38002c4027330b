// Describes the cluster of a run for the cost model: measures CPUs, and finds GPUs in the catalog.
#pragma once

#include "copus/cost/framework.h"
#include "copus/spec/cluster_spec.h"
#include "copus/train/engine/layout.h"

namespace copus {

// The name of a rank's share of the CPUs in a cluster that was measured here.
constexpr const char* kMeasuredRank = "CPU rank";

// Returns the cluster of this run. Every rank calls this, and all get the same. On CPUs all ranks
// measure at the same time, as they will compute at the same time: a layer of this model at two
// sizes, the memory, and messages between all ranks. This takes about a second. On GPUs it returns
// the catalog's entry for this GPU; if there is none, the error names --cluster.
Result<ClusterSpec> this_cluster(const Comm& world, const LayoutOptions& run);

// Returns the cost model's time for one layer of the run's model, forward and backward, on `rows`
// sequences of seq_len tokens.
Seconds predicted_layer(const ClusterSpec& cluster, const LayoutOptions& run, std::int64_t rows,
                        std::int64_t seq_len);
// Scales the rates and sets the cost of launching an operator so that the cost model gives the
// layer's measured time for both numbers of rows. The time that grows with the rows is arithmetic
// and memory; the rest is operators.
void calibrate(ClusterSpec& cluster, const LayoutOptions& run, std::int64_t seq_len,
               const Seconds (&measured)[2], const std::int64_t (&rows)[2]);

// Returns the size of this node's memory.
Bytes host_memory();

}  // namespace copus
