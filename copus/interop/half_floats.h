// Floating-point formats of tensor files to and from float. NaN stays NaN, infinity infinity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace copus {

// Bytes of an element of a format by its name in safetensors: F32, BF16, F16; 0 for others.
std::int64_t float_bytes(std::string_view dtype);
// The elements of `bytes` as floats. REQUIRES: a format of float_bytes(), as many elements in both.
void widen(std::string_view dtype, std::span<const std::byte> bytes, std::span<float> out);
// The opposite, to the nearest, ties to even. REQUIRES: F32 or BF16.
void narrow(std::string_view dtype, std::span<const float> values, std::span<std::byte> out);

}  // namespace copus
