// The transfer plan: what moves where when a live run goes from one layout to another.
//
// Every rank computes the plan alone, and all compute the same. A rank keeps what it holds; every
// other element comes once, from one rank that holds it. So the bytes that move are the fewest that
// the two layouts allow. The source is on the same node where one is, and of several the one that
// sends the least so far.
//
// Padding is nobody's state: it is not moved, and stays what a fresh bucket has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "copus/train/state/stripe.h"

namespace copus {

// In FP32 the optimizer's state is Adam's two moments: the values are their own master. In BF16 it
// is master, moment1 and moment2, in this order; a rank makes the values that it owns from the
// master, so none of these is moved or kept.
std::int64_t bytes_per_element(StateKind kind, bool bf16);

struct StatePart {
  StateKind kind = StateKind::kValues;
  std::size_t tensor = 0;  // in model_tensors()
  Stripe stripe;
  friend auto operator<=>(const StatePart&, const StatePart&) = default;
};

// The parts between two ranks: the same list in the same order on both. Optimizer state is first,
// so that in a message without gaps every part begins at a multiple of its numbers' size.
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
  bool bf16 = false;       // values; otherwise they are FP32, their own master
  int ranks_per_node = 1;  // consecutive ranks
};

// One rank's view, and all ranks' totals.
struct TransferPlan {
  std::vector<Transfer> sends;     // by peer, ascending
  std::vector<Transfer> receives;  // by peer, ascending
  std::vector<StatePart> kept;     // from the rank's old buckets to its new ones

  std::vector<std::int64_t> sent;      // bytes, by rank
  std::vector<std::int64_t> received;  // bytes, by rank
  std::int64_t moved = 0;              // bytes between different ranks
};

// REQUIRES: both plans are valid, trainable and of the same number of ranks.
TransferPlan plan_transfer(const LayoutChange& change, int rank);

}  // namespace copus
