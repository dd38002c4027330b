// For each element of a tensor at a layout: the ranks that hold it, and the ranks that need it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "copus/train/state/stripe.h"

namespace copus {

// The ranks of one or two stages within a range of data-parallel coordinates and a range of
// tensor-parallel coordinates.
struct RankBlock {
  std::array<std::int64_t, 2> stages{};
  std::size_t stage_count = 1;
  Range dp;
  Range tp;

  std::int64_t count() const {
    return static_cast<std::int64_t>(stage_count) * dp.size() * tp.size();
  }
};

struct Holding {
  Stripe stripe;
  RankBlock ranks;  // each of them holds the whole stripe
};

// The holdings of all ranks of a plan. REQUIRES: cp = ep = 1, zero at most 1.
class Holdings {
 public:
  Holdings(const ModelSpec& model, const ParallelPlan& plan, std::int64_t bucket_elements);

  std::size_t tensors() const { return tensors_.size(); }
  // The holdings of a tensor (its index in model_tensors()), in lanes. The holdings of a lane have
  // the same columns, are disjoint and ascend. Together the lanes are the whole tensor.
  std::vector<std::vector<Holding>> held(std::size_t tensor, StateKind kind) const;
  // The stripes that ranks need at this layout, in lanes. With `values_from_master`, ranks compute
  // the values that they own from the master weights, so these are left out; stripes that different
  // ranks need then overlap.
  std::vector<std::vector<Holding>> needed(std::size_t tensor, StateKind kind,
                                           bool values_from_master) const;
  // How many ranks hold each element.
  std::int64_t copies(std::size_t tensor, StateKind kind) const;

  bool contains(const RankBlock& ranks, int rank) const;
  template <typename Visit>
  void for_each_rank(const RankBlock& ranks, Visit visit) const {  // ascending
    for (std::size_t i = 0; i < ranks.stage_count; ++i) {
      for (std::int64_t dp = ranks.dp.begin; dp < ranks.dp.end; ++dp) {
        const std::int64_t row = (ranks.stages[i] * plan_.dp + dp) * plan_.tp;
        for (std::int64_t tp = ranks.tp.begin; tp < ranks.tp.end; ++tp) {
          visit(static_cast<int>(row + tp));
        }
      }
    }
  }

 private:
  // Where a tensor lies: at the same offset at all stages that hold it.
  struct Home {
    std::array<std::int64_t, 2> stages{};
    std::size_t stage_count = 0;
    std::int64_t offset = 0;
    std::int64_t size = 0;
    std::int64_t padded = 0;  // of the bucket
  };
  bool sharded(StateKind kind) const;
  // Calls `add_part` for each tensor-parallel part of a tensor, and returns the holdings that it
  // adds, in lanes.
  template <typename AddPart>
  std::vector<std::vector<Holding>> lanes(std::size_t tensor, AddPart add_part) const;

  ParallelPlan plan_;
  std::vector<TensorSpec> tensors_;
  std::vector<Home> homes_;
  std::vector<Coordinates> coordinates_;  // by rank
};

}  // namespace copus
