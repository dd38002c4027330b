#include "copus/interop/half_floats.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "copus/base/check.h"

namespace copus {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian");

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float from_f16(std::uint16_t bits) {
  const bool negative = (bits & 0x8000U) != 0;
  const int exponent = bits >> 10 & 0x1f;
  const auto fraction = static_cast<std::uint32_t>(bits & 0x3ffU);
  float size = 0;
  if (exponent == 0) {
    size = std::ldexp(static_cast<float>(fraction), -24);
  } else if (exponent == 31) {
    size = std::bit_cast<float>(0x7f800000U | fraction << 13);
  } else {
    size = std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 112) << 23 | fraction << 13);
  }
  return negative ? -size : size;
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could carry a NaN's fraction away; a set high bit keeps it one.
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  const std::uint32_t odd = bits >> 16 & 1U;
  return static_cast<std::uint16_t>((bits + 0x7fffU + odd) >> 16);
}

std::int64_t float_bytes(std::string_view dtype) {
  if (dtype == "F32") return 4;
  return dtype == "BF16" || dtype == "F16" ? 2 : 0;
}

void widen(std::string_view dtype, std::span<const std::byte> bytes, std::span<float> out) {
  COPUS_CHECK(bytes.size() == out.size() * static_cast<std::size_t>(float_bytes(dtype)));
  if (dtype == "F32") {
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return;
  }
  const bool is_bf16 = dtype == "BF16";
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    out[i] = is_bf16 ? from_bf16(bits) : from_f16(bits);
  }
}

void narrow(std::string_view dtype, std::span<const float> values, std::span<std::byte> out) {
  COPUS_CHECK(dtype != "F16" &&
              out.size() == values.size() * static_cast<std::size_t>(float_bytes(dtype)));
  if (dtype == "F32") {
    std::memcpy(out.data(), values.data(), out.size());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = to_bf16(values[i]);
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
}

}  // namespace copus
