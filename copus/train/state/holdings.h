// Which ranks hold, and which need, which elements of a tensor at a layout.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "copus/train/state/stripe.h"

namespace copus {

// Ranks of one stage or two, with a range of data-parallel and one of tensor-parallel coordinates.
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
  RankBlock ranks;  // each has all of the stripe
};

// A plan's holdings, for all ranks. REQUIRES: cp = ep = 1, zero at most 1.
class Holdings {
 public:
  Holdings(const ModelSpec& model, const ParallelPlan& plan, std::int64_t bucket_elements);

  std::size_t tensors() const { return tensors_.size(); }
  // The holdings of a tensor (its index in model_tensors()), in lanes: those of a lane have the
  // same columns, are disjoint and ascend. Together the lanes are the whole tensor.
  std::vector<std::vector<Holding>> held(std::size_t tensor, StateKind kind) const;
  // The same of what must be brought; where the ranks make the values that they own from the
  // master, those are left out, and what one rank needs overlaps what others do.
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
  // A tensor's place: the same at all stages that hold it.
  struct Home {
    std::array<std::int64_t, 2> stages{};
    std::size_t stage_count = 0;
    std::int64_t offset = 0;
    std::int64_t size = 0;
    std::int64_t padded = 0;  // of the bucket
  };
  bool sharded(StateKind kind) const;
  // Visits each part of a tensor with the tensor-parallel ranks that hold it, in lanes.
  template <typename AddPart>
  std::vector<std::vector<Holding>> lanes(std::size_t tensor, AddPart add_part) const;

  ParallelPlan plan_;
  std::vector<TensorSpec> tensors_;
  std::vector<Home> homes_;
  std::vector<Coordinates> coordinates_;  // by rank
};

}  // namespace copus
