#include "copus/tuner/expert_flows.h"

#include <algorithm>
#include <cmath>

#include "copus/spec/rank_grid.h"

namespace copus {
namespace {

// The members of one rank's expert-parallel group.
struct Group {
  Group(const RankGrid& grid, std::int64_t rank, std::int64_t gpus_per_node)
      : size(grid.group_size(Axis::kEp)),
        stride(grid.stride(Axis::kEp)),
        index(rank / stride % size),
        first(rank - index * stride),
        per_node(gpus_per_node) {}

  std::int64_t rank_at(std::int64_t member) const { return first + member * stride; }
  std::int64_t node_of(std::int64_t member) const { return rank_at(member) / per_node; }

  std::int64_t size, stride, index, first, per_node;
};

// The chance that a token has an expert in a part of the experts with this share of the
// assignments. `even` is the chance for equal parts, 1/parts each.
double reach(double share, double parts, double even, double topk) {
  const auto any = [&](double s) { return 1 - std::pow(1 - s, topk); };
  return std::min(1.0, any(share) * even / any(1 / parts));
}

// Each token goes once to every node that has experts of it: to the GPU in the same place there as
// the sender's on its own node. That GPU hands it on to the others. The combine goes the same way
// back.
std::vector<ExpertFlow> deduplicated(const MoeSpec& moe, const Group& group,
                                     const std::vector<double>& shares) {
  const double topk = real(moe.experts_per_token);
  const double ranks = real(group.size);
  std::vector<std::int64_t> node_begin;  // the first member on each node
  for (std::int64_t j = 0; j < group.size; ++j) {
    if (j == 0 || group.node_of(j) != group.node_of(j - 1)) node_begin.push_back(j);
  }
  const auto nodes = static_cast<std::int64_t>(node_begin.size());
  node_begin.push_back(group.size);
  const double even_rank = parts_reached(moe, group.size) / ranks;
  const double even_node = parts_reached(moe, nodes) / real(nodes);
  const auto to_rank = [&](std::int64_t j) {
    return reach(shares[static_cast<std::size_t>(j)], ranks, even_rank, topk) / topk;
  };
  const auto to_node = [&](std::size_t n) {
    double share = 0;
    for (std::int64_t j = node_begin[n]; j < node_begin[n + 1]; ++j)
      share += shares[static_cast<std::size_t>(j)];
    return reach(share, real(nodes), even_node, topk) / topk;
  };
  const auto own = static_cast<std::size_t>(
      std::upper_bound(node_begin.begin(), node_begin.end(), group.index) - node_begin.begin() - 1);
  const std::int64_t place = group.index - node_begin[own];

  std::vector<ExpertFlow> flows;
  // Inside the node the rank hands on its own tokens and those of the ranks in its place on the
  // other nodes.
  for (std::int64_t j = node_begin[own]; j < node_begin[own + 1]; ++j) {
    if (j != group.index) {
      flows.push_back(
          {group.rank_at(j), real(nodes) * to_rank(j), real(nodes) * to_rank(group.index)});
    }
  }
  for (std::size_t n = 0; n + 1 < node_begin.size(); ++n) {
    if (n == own) continue;
    const std::int64_t there = std::min(node_begin[n] + place, node_begin[n + 1] - 1);
    flows.push_back({group.rank_at(there), to_node(n), to_node(own)});
  }
  return flows;
}

}  // namespace

std::vector<ExpertFlow> expert_flows(const StepModel& step, const ParallelPlan& plan,
                                     const std::vector<double>& shares, std::int64_t rank) {
  const Group group(RankGrid(plan), rank, step.cluster().gpus_per_node);
  if (sends_tokens_once(step.options())) return deduplicated(step.model().moe, group, shares);
  // A rank sends with the dispatch to the ranks of other experts, and with the combine from its own
  // experts.
  std::vector<ExpertFlow> flows;
  const double own = shares[static_cast<std::size_t>(group.index)];
  for (std::int64_t j = 0; j < group.size; ++j) {
    if (j != group.index)
      flows.push_back({group.rank_at(j), shares[static_cast<std::size_t>(j)], own});
  }
  return flows;
}

}  // namespace copus
