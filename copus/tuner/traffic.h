// Traffic: who talks to whom. Bytes from each GPU to each GPU in one training step, by dimension.
//
// GPUs are numbered as ranks, node by node (rank_grid.h). All-reduce, all-gather and reduce-scatter
// go round a ring in rank order, so a GPU sends to the next member of its group only; an all-to-all
// sends to each member; a pipeline stage sends to the same place in the next stage (activations)
// and in the one before (gradients). Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "copus/base/result.h"
#include "copus/base/units.h"
#include "copus/cost/step.h"
#include "copus/spec/cluster_spec.h"
#include "copus/spec/parallel_plan.h"
#include "copus/tuner/traffic_volume.h"

namespace copus {

struct Flow {
  std::int32_t source = 0;
  std::int32_t destination = 0;
  Dimension dimension = Dimension::kTp;
  Bytes bytes;
};

// A sparse matrix: flows ordered by source, destination, dimension; each such triple once, none
// empty, none from a GPU to itself.
struct Traffic {
  std::int64_t gpus = 0;
  std::int64_t gpus_per_node = 1;
  std::vector<Flow> flows;

  DimensionBytes totals() const;
  Bytes total() const;
};

// Above this many flows the matrix is of use to nobody; expert parallelism over many GPUs gets
// there first, with ep flows per GPU.
constexpr std::int64_t kMaxFlows = 10'000'000;

// The error is the plan's own when it does not fit model, cluster and batch. `skew`: of the gate,
// see expert_rank_shares.
Result<Traffic> compute_traffic(const StepModel& step, const ParallelPlan& plan, double skew);

// Bytes of one all-to-all in one group of the given buffer: entry [i*ep + j] goes from member i to
// member j. Combine is the transpose of dispatch; their backward passes repeat them.
std::vector<double> dispatch_matrix(const std::vector<double>& shares, Bytes buffer);

// The same traffic with `gpus` neighbours taken for one. What stays inside such a group is a flow
// from it to itself.
Traffic grouped(const Traffic& traffic, std::int64_t gpus);

// Load of one kind of link in one direction.
struct LinkLoad {
  Bytes worst;
  Bytes mean;
  std::int64_t worst_at = 0;  // the GPU or node
  Seconds time;               // the worst load at the link's full rate
};

struct LinkLoads {
  LinkLoad gpu_out, gpu_in;    // the in-node links of one GPU
  LinkLoad node_out, node_in;  // the network of one node, all cards together
};
LinkLoads link_loads(const Traffic& traffic, const ClusterSpec& cluster);

}  // namespace copus
