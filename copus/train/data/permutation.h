// A permutation of [0, size) that is computed per index and not stored. So an epoch over any number
// of samples needs no memory, and any rank can ask for any index.
#pragma once

#include <cstdint>

namespace copus {

// Returns the place to which `index` moves. Each key gives a bijection on [0, size).
// REQUIRES: index < size.
std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t key);

}  // namespace copus
