#include "copus/train/data/permutation.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "copus/train/data/random.h"

namespace copus {
namespace {

TEST(Permutation, IsABijectionForEverySizeAndKey) {
  std::vector<std::uint64_t> sizes = {255, 256, 257, 1000, 4095, 4096, 4097, 65537};
  for (std::uint64_t size = 1; size <= 130; ++size) sizes.push_back(size);
  for (const std::uint64_t size : sizes) {
    for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
      std::vector<bool> seen(size);
      for (std::uint64_t i = 0; i < size; ++i) {
        const std::uint64_t to = permuted(i, size, key);
        ASSERT_LT(to, size);
        ASSERT_FALSE(seen[to]) << size << " " << key << " " << i;
        seen[to] = true;
      }
    }
  }
}

TEST(Permutation, SizesUpTo63BitsStayInside) {
  for (unsigned bits = 1; bits < 63; ++bits) {
    for (const std::uint64_t size : {(std::uint64_t{1} << bits) - 1, std::uint64_t{1} << bits,
                                     (std::uint64_t{1} << bits) + 1}) {
      EXPECT_LT(permuted(0, size, 5), size);
      EXPECT_LT(permuted(size - 1, size, 5), size);
      EXPECT_NE(permuted(0, size, 5), size == 1 ? 1 : permuted(size - 1, size, 5) + size);
    }
  }
}

// All 5! = 120 orders of five numbers are equally likely. With 12,000 keys, each order is expected
// 100 times, with a standard deviation of 10. The worst of the 120 may be six deviations off.
TEST(Permutation, EveryOrderOfFiveIsAsLikely) {
  std::array<int, 3125> counts{};
  for (std::uint64_t key = 0; key < 12'000; ++key) {
    std::size_t code = 0;
    for (std::uint64_t i = 0; i < 5; ++i) code = code * 5 + permuted(i, 5, mix64(key));
    ++counts[code];
  }
  int orders = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++orders;
    EXPECT_NEAR(count, 100, 60);
  }
  EXPECT_EQ(orders, 120);
}

// Neighbours move as far apart as random places: their mean distance is a third of the size.
TEST(Permutation, NeighboursDoNotStayNeighbours) {
  constexpr std::uint64_t kSize = 100'000;
  double distance = 0;
  for (std::uint64_t i = 0; i + 1 < kSize; ++i) {
    const auto a = static_cast<double>(permuted(i, kSize, 9));
    distance += std::abs(a - static_cast<double>(permuted(i + 1, kSize, 9)));
  }
  EXPECT_NEAR(distance / kSize / kSize, 1.0 / 3, 0.01);
}

}  // namespace
}  // namespace copus
