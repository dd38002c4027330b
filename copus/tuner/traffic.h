// Computes the traffic of one training step: the bytes from each GPU to each GPU, by dimension.
//
// GPUs are numbered as ranks, node by node (rank_grid.h). All-reduce, all-gather and reduce-scatter
// use a ring in rank order, so a GPU sends only to the next member of its group. In an all-to-all
// it sends to each member, or once to each node that hands tokens on (expert_flows.h). A pipeline
// stage sends to the same place in the next stage (activations) and in the previous one
// (gradients). Pure functions; thread-safe.
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

// A sparse matrix: flows ordered by source, destination and dimension. Each such triple occurs
// once. No flow is empty, and none goes from a GPU to itself.
struct Traffic {
  std::int64_t gpus = 0;
  std::int64_t gpus_per_node = 1;
  std::vector<Flow> flows;

  DimensionBytes totals() const;
  Bytes total() const;
};

// A matrix with more flows than this is of no use. Expert parallelism over many GPUs reaches the
// limit first, with ep flows per GPU.
constexpr std::int64_t kMaxFlows = 10'000'000;

// Returns the traffic matrix of a plan. If the plan does not fit model, cluster and batch, the
// error is that of step.validate(). `skew` is the skew of the gate; see expert_rank_shares().
Result<Traffic> compute_traffic(const StepModel& step, const ParallelPlan& plan, double skew);

// Returns the bytes of one dispatch in one group: entry [i*ep + j] goes from member i to member j.
// The combine is the transpose of the dispatch. The backward pass repeats both.
std::vector<double> dispatch_matrix(const std::vector<double>& shares, Bytes buffer);

// Returns the same traffic with every `gpus` consecutive GPUs merged into one group. Traffic inside
// a group is a flow from the group to itself.
Traffic grouped(const Traffic& traffic, std::int64_t gpus);

// The load of one kind of link in one direction.
struct LinkLoad {
  Bytes worst;
  Bytes mean;
  std::int64_t worst_at = 0;  // the GPU or node with the largest load
  Seconds time;               // for the largest load at the link's full rate
};

struct LinkLoads {
  LinkLoad gpu_out, gpu_in;    // the in-node links of one GPU
  LinkLoad node_out, node_in;  // the network of one node, all cards together
};
LinkLoads link_loads(const Traffic& traffic, const ClusterSpec& cluster);

}  // namespace copus
