// Random integers that are the same on every platform: without std:: distributions and without
// floating point.
#pragma once

#include <cstdint>

#include "copus/base/hash.h"

namespace copus {

constexpr std::uint64_t mix64(std::uint64_t a, std::uint64_t b) { return mix64(mix64(a) ^ b); }

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_(mix64(seed)) {}

  constexpr std::uint32_t next() {
    const std::uint64_t out = mix64(state_);
    state_ += 0x9E3779B97F4A7C15U;
    return static_cast<std::uint32_t>(out >> 32U);
  }
  // Returns a number in [0, n). Its bias is n / 2^32.
  constexpr std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{next()} * n) >> 32U);
  }
  constexpr bool chance(std::uint32_t percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

}  // namespace copus
