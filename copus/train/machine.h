// The cluster that a run is on, as the cost model wants it: measured on CPUs, from the catalog on
// GPUs.
#pragma once

#include "copus/cost/options.h"
#include "copus/spec/cluster_spec.h"
#include "copus/train/comm.h"

namespace copus {

// Every rank calls this; all get the same. On CPUs all ranks measure at once, as they will compute
// at once: matrix products, memory, an operator's own cost, messages between all of them; about half
// a second. On GPUs: the catalog's entry for this GPU; an error names --cluster where it has none.
Result<ClusterSpec> this_cluster(const Comm& world, at::Device device, int ranks_per_node);

// What this engine does, for the cost model.
CostOptions engine_cost_options(at::Device device, Precision precision);

}  // namespace copus
