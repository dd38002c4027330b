#include "copus/spec/rank_grid.h"

#include <cstddef>

#include "copus/base/check.h"

namespace copus {

std::string_view to_string(Axis axis) {
  switch (axis) {
    case Axis::kTp:
      return "tp";
    case Axis::kCp:
      return "cp";
    case Axis::kDp:
      return "dp";
    case Axis::kPp:
      return "pp";
    case Axis::kEtp:
      return "etp";
    case Axis::kEp:
      return "ep";
    case Axis::kEdp:
      return "edp";
    case Axis::kDpCp:
      return "dp*cp";
  }
  return "";
}

RankGrid::RankGrid(const ParallelPlan& plan)
    : tp_(plan.tp), cp_(plan.cp), dp_(plan.dp), pp_(plan.pp), ep_(plan.ep), etp_(plan.expert_tp()) {
  COPUS_CHECK(tp_ >= 1 && cp_ >= 1 && dp_ >= 1 && pp_ >= 1 && ep_ >= 1 && etp_ >= 1);
  COPUS_CHECK(tp_ * dp_ * cp_ % (ep_ * etp_) == 0);
}

std::int64_t RankGrid::size() const { return tp_ * cp_ * dp_ * pp_; }

std::int64_t RankGrid::rank_of(Coordinates c) const {
  return ((c.pp * dp_ + c.dp) * cp_ + c.cp) * tp_ + c.tp;
}

Coordinates RankGrid::coordinates_of(std::int64_t rank) const {
  Coordinates c;
  c.tp = rank % tp_;
  rank /= tp_;
  c.cp = rank % cp_;
  rank /= cp_;
  c.dp = rank % dp_;
  c.pp = rank / dp_;
  return c;
}

std::int64_t RankGrid::group_size(Axis axis) const {
  switch (axis) {
    case Axis::kTp:
      return tp_;
    case Axis::kCp:
      return cp_;
    case Axis::kDp:
      return dp_;
    case Axis::kPp:
      return pp_;
    case Axis::kEtp:
      return etp_;
    case Axis::kEp:
      return ep_;
    case Axis::kEdp:
      return tp_ * cp_ * dp_ / (ep_ * etp_);
    case Axis::kDpCp:
      return dp_ * cp_;
  }
  return 1;
}

std::int64_t RankGrid::stride(Axis axis) const {
  switch (axis) {
    case Axis::kTp:
    case Axis::kEtp:
      return 1;
    case Axis::kCp:
    case Axis::kDpCp:  // cp and dp are next to each other in the order, so they form one axis
      return tp_;
    case Axis::kEp:
      return etp_;
    case Axis::kEdp:
      return etp_ * ep_;
    case Axis::kDp:
      return tp_ * cp_;
    case Axis::kPp:
      return tp_ * cp_ * dp_;
  }
  return 1;
}

std::vector<std::int64_t> RankGrid::group_of(std::int64_t rank, Axis axis) const {
  const std::int64_t size = group_size(axis);
  const std::int64_t step = stride(axis);
  // Groups are blocks of `size` steps along the axis, also for experts, so the place in the block
  // follows from the rank without coordinates.
  const std::int64_t first = rank - rank / step % size * step;
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) ranks[static_cast<std::size_t>(i)] = first + i * step;
  return ranks;
}

}  // namespace copus
