#include "copus/train/state/stripe.h"

#include <gtest/gtest.h>

#include <random>

#include "copus/train/state/test_layouts.h"

namespace copus {
namespace {

constexpr std::int64_t kRows = 5, kColumns = 7;

// The row-major indices of a stripe's elements in a matrix of `width` columns.
std::vector<std::int64_t> elements(const Stripe& stripe, std::int64_t width = kColumns) {
  std::vector<std::int64_t> result;
  for (std::int64_t k = stripe.begin; k < stripe.end; ++k) {
    result.push_back(k / stripe.columns * width + stripe.first_column + k % stripe.columns);
  }
  return result;
}

Stripe random_stripe(std::mt19937& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
  };
  Stripe s;
  s.first_column = below(kColumns);
  s.columns = 1 + below(kColumns - s.first_column);
  s.begin = below(kRows * s.columns + 1);
  s.end = s.begin + below(kRows * s.columns - s.begin + 1);
  return s;
}

TEST(Stripe, OverlapIsTheIntersection) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 5000; ++trial) {
    const Stripe a = random_stripe(random), b = random_stripe(random);
    const std::vector<std::int64_t> in_a = elements(a), in_b = elements(b);
    std::vector<std::int64_t> both;
    std::set_intersection(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(),
                          std::back_inserter(both));
    EXPECT_EQ(elements(overlap(a, b)), both);
    EXPECT_EQ(overlap(a, b).empty(), both.empty());
    if (ends_before(a, b)) {
      EXPECT_TRUE(both.empty());
    }
  }
}

TEST(Stripe, AFlatRangeOfAnyLocalPartIsOneAndLiesInAtMostThreeBlocks) {
  std::mt19937 random(1);
  for (const Cut cut : {Cut::kNone, Cut::kRows, Cut::kColumns}) {
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{kRows, kColumns}, std::vector<std::int64_t>{kRows}}) {
      if (cut == Cut::kColumns && shape.size() == 1) continue;
      for (const std::int64_t tp : {1, 2, 3}) {
        for (std::int64_t rank = 0; rank < tp; ++rank) {
          PlacedTensor part;
          part.spec.shape = shape;
          part.spec.cut = cut;
          part.shard = shard_of(part.spec, tp, rank);
          part.offset = 11;
          part.size = element_count(local_shape(part.spec, part.shard));
          for (std::int64_t begin = 0; begin <= part.size; ++begin) {
            for (std::int64_t end = begin; end <= part.size; ++end) {
              std::vector<std::int64_t> expected, places;
              for (std::int64_t i = begin; i < end; ++i) {
                if (whole_element(part, i) == kPadding) continue;
                expected.push_back(whole_element(part, i));
                places.push_back(part.offset + i);
              }
              const Stripe stripe = stripe_of(part.spec, part.shard, {begin, end});
              EXPECT_EQ(elements(stripe, shape.size() > 1 ? kColumns : 1), expected);
              const std::vector<Block> blocks = blocks_of(part, stripe);
              EXPECT_LE(blocks.size(), 3U);
              std::vector<std::int64_t> covered;
              for (const Block& block : blocks) {
                for (std::int64_t i = 0; i < block.rows * block.columns; ++i) {
                  covered.push_back(block.offset + i / block.columns * block.stride +
                                    i % block.columns);
                }
              }
              EXPECT_EQ(covered, places);
              if (part.shard.padded == part.shard.length && !stripe.empty()) {
                EXPECT_EQ(blocks.size(), 1U) << "what is consecutive is one block";
              }
            }
          }
        }
      }
    }
  }
}

TEST(Stripe, BlocksOfANarrowerStripeAreItsElementsInOrder) {
  std::mt19937 random(1);
  PlacedTensor part;
  part.spec.shape = {kRows, kColumns};
  part.shard = shard_of(part.spec, 1, 0);
  part.size = kRows * kColumns;
  for (int trial = 0; trial < 2000; ++trial) {
    const Stripe stripe = random_stripe(random);
    std::vector<std::int64_t> covered;
    for (const Block& block : blocks_of(part, stripe)) {
      for (std::int64_t i = 0; i < block.rows * block.columns; ++i) {
        covered.push_back(block.offset + i / block.columns * block.stride + i % block.columns);
      }
    }
    EXPECT_EQ(covered, elements(stripe));
  }
}

}  // namespace
}  // namespace copus
