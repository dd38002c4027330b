// RankGrid: maps ranks to coordinates and groups, in Megatron-LM's order: tp fastest, then cp, dp,
// pp. Experts divide the tp*cp*dp ranks of a stage in their own order: etp fastest, then ep, and
// the rest (edp, expert data parallel) holds replicas.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "copus/spec/parallel_plan.h"

namespace copus {

enum class Axis { kTp, kCp, kDp, kPp, kEtp, kEp, kEdp, kDpCp };
std::string_view to_string(Axis axis);

struct Coordinates {
  std::int64_t tp = 0, cp = 0, dp = 0, pp = 0;
};

class RankGrid {
 public:
  explicit RankGrid(const ParallelPlan& plan);

  std::int64_t size() const;
  std::int64_t rank_of(Coordinates c) const;
  Coordinates coordinates_of(std::int64_t rank) const;

  std::int64_t group_size(Axis axis) const;
  // Returns the distance in ranks between neighbours of a group.
  std::int64_t stride(Axis axis) const;
  // Returns all ranks of the group of `rank` along `axis`, in order.
  std::vector<std::int64_t> group_of(std::int64_t rank, Axis axis) const;

 private:
  std::int64_t tp_, cp_, dp_, pp_, ep_, etp_;
};

}  // namespace copus
