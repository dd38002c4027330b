// The transfer plan: which state each rank sends to which other rank when a live run changes its
// layout.
//
// Every rank computes the same plan on its own. A rank keeps the elements that it holds already. It
// receives each of the others once, from one rank that holds it. So no plan between the two layouts
// can move fewer bytes. The source is a rank on the same node, if one holds the element. If there
// are several possible sources, it is the one that sends the fewest bytes so far.
//
// Padding is not state. It is not moved, and keeps the content of a fresh bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "copus/train/state/stripe.h"

namespace copus {

// In FP32 the optimizer state is Adam's two moments, because the values are their own master. In
// BF16 it is master, moment1 and moment2, in this order. A rank computes the BF16 values that it
// owns from the master, so these values are neither moved nor kept.
std::int64_t bytes_per_element(StateKind kind, bool bf16);

struct StatePart {
  StateKind kind = StateKind::kValues;
  std::size_t tensor = 0;  // in model_tensors()
  Stripe stripe;
  friend auto operator<=>(const StatePart&, const StatePart&) = default;
};

// The parts that one rank sends to another: both have the same list in the same order. Optimizer
// state comes first, so that in a message without gaps every part begins at a multiple of the size
// of its numbers.
struct Transfer {
  int peer = 0;
  std::int64_t bytes = 0;
  std::vector<StatePart> parts;
};

struct LayoutChange {
  ModelSpec model;
  ParallelPlan from;
  ParallelPlan to;
  std::int64_t bucket_elements = 8 << 20;
  bool bf16 = false;       // the values are BF16; otherwise they are FP32, and their own master
  int ranks_per_node = 1;  // the ranks of a node are consecutive
};

// The transfers of one rank, and the totals of all ranks.
struct TransferPlan {
  std::vector<Transfer> sends;     // by peer, ascending
  std::vector<Transfer> receives;  // by peer, ascending
  std::vector<StatePart> kept;     // copied from the rank's old buckets to its new ones

  std::vector<std::int64_t> sent;      // bytes, by rank
  std::vector<std::int64_t> received;  // bytes, by rank
  std::int64_t moved = 0;              // bytes between different ranks
};

// REQUIRES: both plans are valid, can be trained, and have the same number of ranks.
TransferPlan plan_transfer(const LayoutChange& change, int rank);

}  // namespace copus
