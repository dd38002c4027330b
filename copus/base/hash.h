// Hashes that are the same on every platform and in every version: runs record some of them, and
// initial weights are computed from others.
#pragma once

#include <cstdint>
#include <string_view>

namespace copus {

// One step of FNV-1a (Fowler, Noll, Vo). FNV-1a adds bytes; `word` may also be larger than a byte.
constexpr std::uint64_t kNoHash = 0xcbf29ce484222325U;
constexpr std::uint64_t add_to_hash(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 0x100000001b3U;
}

constexpr std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = kNoHash;
  for (const char c : text) hash = add_to_hash(hash, static_cast<unsigned char>(c));
  return hash;
}

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection on 64 bits in which
// each input bit flips each output bit about half the time.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

}  // namespace copus
