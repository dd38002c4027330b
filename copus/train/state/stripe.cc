#include "copus/train/state/stripe.h"

#include <algorithm>

#include "copus/base/check.h"

namespace copus {
namespace {

struct Columns {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

Columns shared_columns(const Stripe& a, const Stripe& b) {
  const std::int64_t first = std::max(a.first_column, b.first_column);
  const std::int64_t end = std::min(a.first_column + a.columns, b.first_column + b.columns);
  return {first, std::max<std::int64_t>(0, end - first)};
}

// How many elements of `inside`, row by row, come before element k of the stripe.
std::int64_t count_before(const Stripe& stripe, std::int64_t k, const Columns& inside) {
  const std::int64_t column = stripe.first_column + k % stripe.columns - inside.first;
  return k / stripe.columns * inside.count + std::clamp<std::int64_t>(column, 0, inside.count);
}

}  // namespace

Stripe overlap(const Stripe& a, const Stripe& b) {
  const Columns inside = shared_columns(a, b);
  if (inside.count == 0) return {};
  return {.first_column = inside.first,
          .columns = inside.count,
          .begin = std::max(count_before(a, a.begin, inside), count_before(b, b.begin, inside)),
          .end = std::min(count_before(a, a.end, inside), count_before(b, b.end, inside))};
}

bool ends_before(const Stripe& a, const Stripe& b) {
  const Columns inside = shared_columns(a, b);
  return count_before(a, a.end, inside) <= count_before(b, b.begin, inside);
}

Stripe stripe_of(const TensorSpec& tensor, const Shard& shard, const Range& local) {
  const std::int64_t width = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
  if (tensor.cut == Cut::kColumns) {
    if (shard.length == 0) return {};
    const auto real = [&](std::int64_t i) {
      return i / shard.padded * shard.length + std::min(i % shard.padded, shard.length);
    };
    return {shard.begin, shard.length, real(local.begin), real(local.end)};
  }
  const auto real = [&](std::int64_t i) {
    return shard.begin * width + std::min(i, shard.length * width);
  };
  return {0, width, real(local.begin), real(local.end)};
}

std::vector<Block> blocks_of(const PlacedTensor& part, const Stripe& stripe) {
  if (stripe.empty()) return {};
  const bool by_columns = part.spec.cut == Cut::kColumns;
  const std::int64_t width = part.spec.shape.size() > 1 ? part.spec.shape[1] : 1;
  const std::int64_t stride = by_columns ? part.shard.padded : width;
  const std::int64_t row = part.spec.cut == Cut::kRows ? part.shard.begin : 0;
  const std::int64_t column = stripe.first_column - (by_columns ? part.shard.begin : 0);
  const std::int64_t columns = stripe.columns;
  COPUS_CHECK(column >= 0 && column + columns <= stride && stripe.begin >= row * columns);

  std::vector<Block> blocks;
  const auto add = [&](std::int64_t begin, std::int64_t rows, std::int64_t length) {
    if (rows == 0 || length == 0) return;
    const std::int64_t at = (begin / columns - row) * stride + column + begin % columns;
    COPUS_CHECK(at + (rows - 1) * stride + length <= part.size);
    blocks.push_back({part.offset + at, rows, length, stride});
  };
  if (columns == stride) {
    add(stripe.begin, 1, stripe.size());
    return blocks;
  }
  // The rest of the first row, whole rows, the beginning of the last row.
  const std::int64_t whole_begin =
      std::min(stripe.end, (stripe.begin + columns - 1) / columns * columns);
  const std::int64_t whole_end = std::max(whole_begin, stripe.end / columns * columns);
  add(stripe.begin, 1, whole_begin - stripe.begin);
  add(whole_begin, (whole_end - whole_begin) / columns, columns);
  add(whole_end, 1, stripe.end - whole_end);
  return blocks;
}

}  // namespace copus
