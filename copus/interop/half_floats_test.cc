#include "copus/interop/half_floats.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace copus {
namespace {

float widened(const char* dtype, std::uint16_t bits) {
  const auto bytes = std::bit_cast<std::array<std::byte, 2>>(bits);
  float value = 0;
  widen(dtype, bytes, {&value, 1});
  return value;
}
float from_bf16(std::uint16_t bits) { return widened("BF16", bits); }
float from_f16(std::uint16_t bits) { return widened("F16", bits); }
std::uint16_t to_bf16(float value) {
  std::array<std::byte, 2> bytes = {};
  narrow("BF16", {&value, 1}, bytes);
  return std::bit_cast<std::uint16_t>(bytes);
}

TEST(HalfFloats, EveryBf16ComesBackAsItWas) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = from_bf16(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(from_bf16(to_bf16(value))));
    } else {
      ASSERT_EQ(to_bf16(value), bits);
    }
  }
}

// narrow() must choose the nearest BF16, and on a tie the one whose last bit is 0.
TEST(HalfFloats, RoundingGoesToTheNearestBf16) {
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    const auto value = std::bit_cast<float>(0x00012345U + i * 10'007U % 0x7f000000U);
    const std::uint16_t chosen = to_bf16(value);
    const double error = std::abs(static_cast<double>(from_bf16(chosen)) - value);
    for (const int step : {-1, 1}) {
      const double other = std::abs(
          static_cast<double>(from_bf16(static_cast<std::uint16_t>(chosen + step))) - value);
      ASSERT_TRUE(error < other || (error == other && chosen % 2 == 0)) << value;
    }
  }
  EXPECT_EQ(to_bf16(-1.0F), to_bf16(1.0F) | 0x8000);
  EXPECT_TRUE(std::isinf(from_bf16(to_bf16(std::numeric_limits<float>::max()))));
  // A NaN whose only mantissa bit is among those that BF16 drops.
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7f800001U)))));
}

// Computes each value from the definition of IEEE 754 binary16.
TEST(HalfFloats, EveryF16HasItsValue) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = from_f16(static_cast<std::uint16_t>(bits));
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double fraction = static_cast<double>(bits & 1023) / 1024;
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == 31) {
      EXPECT_TRUE(fraction == 0 ? std::isinf(value) : std::isnan(value));
      continue;
    }
    const double wanted =
        exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
    ASSERT_EQ(static_cast<double>(value), sign * wanted) << bits;
  }
}

TEST(HalfFloats, BulkIsElementByElement) {
  const std::vector<float> values = {0, -0.0F, 1.5F, -3.14159F, 1e-40F};
  for (const char* dtype : {"F32", "BF16"}) {
    std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(float_bytes(dtype)));
    std::vector<float> again(values.size());
    narrow(dtype, values, bytes);
    widen(dtype, bytes, again);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(again[i], float_bytes(dtype) == 4 ? values[i] : from_bf16(to_bf16(values[i])));
    }
  }
  EXPECT_EQ(float_bytes("I64"), 0);
}

}  // namespace
}  // namespace copus
