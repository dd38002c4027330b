// Stripe: a run of a tensor's elements that every layout can name, and where a rank keeps it.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "copus/train/state/placement.h"

namespace copus {

// Elements of a whole tensor [rows, columns] inside a stripe of its columns, counted row by row:
// element k lies at row k / columns, column first_column + k % columns. A tensor of one dimension
// has one column. Rows cut off a matrix are a stripe as wide as the matrix; a flat range of any
// local part is one too.
struct Stripe {
  std::int64_t first_column = 0;
  std::int64_t columns = 1;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend auto operator<=>(const Stripe&, const Stripe&) = default;
};

// The elements in both: a stripe again.
Stripe overlap(const Stripe& a, const Stripe& b);
// Whether, of the columns that both have, `a` ends before `b` begins.
bool ends_before(const Stripe& a, const Stripe& b);

// What elements `local` of a rank's part are of the whole tensor, the padding left out.
Stripe stripe_of(const TensorSpec& tensor, const Shard& shard, const Range& local);

// Rows of `columns` consecutive elements, `stride` apart, the first at `offset`.
struct Block {
  std::int64_t offset = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};

// Where a bucket keeps a stripe, in the stripe's order: at most three blocks; one row each where
// they are consecutive. REQUIRES: the part contains the stripe.
std::vector<Block> blocks_of(const PlacedTensor& part, const Stripe& stripe);

}  // namespace copus
