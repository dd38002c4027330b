// A permutation of [0, size) that is computed per index: nothing is stored, so that an epoch over
// any number of samples costs no memory and any rank can ask for any index.
#pragma once

#include <cstdint>

namespace copus {

// Where `index` goes. A bijection on [0, size) for each key. REQUIRES: index < size.
std::uint64_t permuted(std::uint64_t index, std::uint64_t size, std::uint64_t key);

}  // namespace copus
