// Stripe: a set of a tensor's elements, named independently of the layout, and where a rank keeps
// it.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "copus/train/state/placement.h"

namespace copus {

// Elements of a whole tensor [rows, columns] inside a stripe of its columns, counted row by row:
// element k lies at row k / columns, column first_column + k % columns. A tensor of one dimension
// has one column. A range of whole rows is a stripe as wide as the matrix. A flat range of a rank's
// local part is a stripe too.
struct Stripe {
  std::int64_t first_column = 0;
  std::int64_t columns = 1;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend auto operator<=>(const Stripe&, const Stripe&) = default;
};

// The elements in both; they form a stripe again.
Stripe overlap(const Stripe& a, const Stripe& b);
// Whether `a` ends before `b` begins, in the columns that both have.
bool ends_before(const Stripe& a, const Stripe& b);

// The elements of the whole tensor at [local.begin, local.end) of a rank's part, without padding.
Stripe stripe_of(const TensorSpec& tensor, const Shard& shard, const Range& local);

// `rows` rows of `columns` consecutive elements each. The first row begins at `offset`, and the
// beginnings of rows are `stride` apart.
struct Block {
  std::int64_t offset = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
};

// The blocks of a bucket that hold a stripe, in the stripe's order: at most three. A stripe whose
// elements are consecutive in the bucket is one block of one row. REQUIRES: `part` contains the
// stripe.
std::vector<Block> blocks_of(const PlacedTensor& part, const Stripe& stripe);

}  // namespace copus
