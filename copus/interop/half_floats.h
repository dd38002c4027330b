// Converts the floating-point formats of tensor files to and from float. NaN stays NaN, and
// infinity stays infinity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace copus {

// Returns the bytes of one element of a format, which has its safetensors name: F32, BF16 or F16.
// Returns 0 for any other name.
std::int64_t float_bytes(std::string_view dtype);
// Converts the elements of `bytes` to floats. REQUIRES: `dtype` is F32, BF16 or F16; both spans
// hold the same number of elements.
void widen(std::string_view dtype, std::span<const std::byte> bytes, std::span<float> out);
// Converts floats to `dtype`, rounding to nearest, ties to even. REQUIRES: `dtype` is F32 or BF16;
// both spans hold the same number of elements.
void narrow(std::string_view dtype, std::span<const float> values, std::span<std::byte> out);

}  // namespace copus
