// Sixteen floats as one value, for kernels.cc and attention.cc. It uses GCC's and Clang's vector
// extension: the compiler puts the value into one AVX-512 register, two AVX registers or four SSE
// registers.
#pragma once

#include <cstdint>
#include <cstring>

// COPUS_EVERY_X86 marks a function that is compiled for three generations of x86. When the program
// starts, the version for the machine is chosen. Functions that it calls must be inlined, or they
// are compiled for the first generation only. Sanitizers do not work before the choice is made, and
// Clang 14 does not know these generations. With either, there is only the first generation.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COPUS_EVERY_X86 \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define COPUS_EVERY_X86
#endif
#define COPUS_INLINE inline __attribute__((always_inline))

// Turns off GCC's warning about how vectors are passed: all functions here are inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace copus::cpu {

constexpr std::int64_t kLanes = 16;
using Vector = float __attribute__((vector_size(64)));
using Integers = std::int32_t __attribute__((vector_size(64)));

COPUS_INLINE Vector load(const float* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
COPUS_INLINE void store(float* to, const Vector& v) { std::memcpy(to, &v, sizeof v); }
// Loads the first `count` lanes, and sets the others to `rest`.
COPUS_INLINE Vector load_some(const float* from, std::int64_t count, float rest) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = rest;
  std::memcpy(lanes, from, static_cast<std::size_t>(count) * sizeof(float));
  return load(lanes);
}
COPUS_INLINE void store_some(float* to, std::int64_t count, const Vector& v) {
  std::memcpy(to, &v, static_cast<std::size_t>(count) * sizeof(float));
}

COPUS_INLINE float sum(const Vector& v) {
  float eight[8], four[4];
  for (int i = 0; i < 8; ++i) eight[i] = v[i] + v[i + 8];
  for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}
COPUS_INLINE Vector larger(const Vector& a, const Vector& b) { return a > b ? a : b; }
COPUS_INLINE float largest(const Vector& v) {
  float m = v[0];
  for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// Returns e^at, accurate to 2 units in the last place. The result is at least e^-87 and at most
// e^87. Computes 2^n e^r with |r| <= ln(2) / 2, by Cephes' polynomial for e^r.
COPUS_INLINE Vector exponential(const Vector& at) {
  const Vector low = Vector{} - 87.0F, high = Vector{} + 87.0F;
  Vector x = at < low ? low : at;
  x = x > high ? high : x;
  // Adding 1.5 * 2^23 rounds to a whole number, which is then in the low bits.
  const Vector shifted = x * 1.44269504F + 12582912.0F;
  const Vector n = shifted - 12582912.0F;
  const Vector r = x - n * 0.693359375F + n * 2.12194440e-4F;
  Vector p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  Integers bits, power;
  std::memcpy(&bits, &p, sizeof bits);
  std::memcpy(&power, &shifted, sizeof power);
  bits += power << 23;  // the constant's own bits are shifted out
  std::memcpy(&p, &bits, sizeof p);
  return p;
}

}  // namespace copus::cpu
