#include "copus/interop/half_floats.h"

#include <Eigen/Core>
#include <bit>
#include <cstring>

#include "copus/base/check.h"

namespace copus {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian");

// Copies each element with memcpy, because the elements of a file may lie on odd addresses.
template <typename Half>
void widen_halves(std::span<const std::byte> bytes, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    out[i] = static_cast<float>(std::bit_cast<Half>(bits));
  }
}

}  // namespace

std::int64_t float_bytes(std::string_view dtype) {
  if (dtype == "F32") return 4;
  return dtype == "BF16" || dtype == "F16" ? 2 : 0;
}

void widen(std::string_view dtype, std::span<const std::byte> bytes, std::span<float> out) {
  COPUS_CHECK(bytes.size() == out.size() * static_cast<std::size_t>(float_bytes(dtype)));
  if (dtype == "F32") {
    std::memcpy(out.data(), bytes.data(), bytes.size());
  } else if (dtype == "BF16") {
    widen_halves<Eigen::bfloat16>(bytes, out);
  } else {
    widen_halves<Eigen::half>(bytes, out);
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
    const auto bits = std::bit_cast<std::uint16_t>(Eigen::bfloat16(values[i]));
    std::memcpy(out.data() + 2 * i, &bits, 2);
  }
}

}  // namespace copus
