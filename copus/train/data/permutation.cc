#include "copus/train/data/permutation.h"

#include <algorithm>
#include <bit>

#include "copus/base/check.h"
#include "copus/train/data/random.h"

namespace copus {

// A Feistel network permutes the numbers below a power of four. Applying it until the value is
// below `size` gives a permutation of [0, size) (Black and Rogaway, "Ciphers with Arbitrary Finite
// Domains", CT-RSA 2002, section 5). This takes fewer than four applications on average, since the
// power of four is below 4 * size. The smallest sizes take more: their halves also have three bits,
// because halves of fewer bits shuffle badly.
std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t key) {
  constexpr std::uint64_t kRounds = 6;
  constexpr unsigned kMinHalfBits = 3;
  COPUS_CHECK(index < size);
  if (size == 1) return 0;
  const auto bits = static_cast<unsigned>(std::bit_width(size - 1));
  const unsigned half = std::max(kMinHalfBits, (bits + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  std::uint64_t value = index;
  do {
    std::uint64_t left = value >> half;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t next = left ^ (mix64(mix64(key, round), right) & mask);
      left = right;
      right = next;
    }
    value = (left << half) | right;
  } while (value >= size);
  return value;
}

}  // namespace copus
