// Units as types: only the operators that mean something exist. All are SI, held as double.
#pragma once

#include <compare>
#include <cstdint>

namespace copus {

template <typename Tag>
struct Quantity {
  double v = 0;

  constexpr Quantity() = default;
  explicit constexpr Quantity(double value) : v(value) {}

  constexpr Quantity& operator+=(Quantity other) {
    v += other.v;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    v -= other.v;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.v + b.v); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.v - b.v); }
  friend constexpr Quantity operator*(Quantity a, double k) { return Quantity(a.v * k); }
  friend constexpr Quantity operator*(double k, Quantity a) { return Quantity(a.v * k); }
  friend constexpr Quantity operator/(Quantity a, double k) { return Quantity(a.v / k); }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.v / b.v; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;
};

using Bytes = Quantity<struct BytesTag>;
using Seconds = Quantity<struct SecondsTag>;
using BytesPerSec = Quantity<struct BytesPerSecTag>;
using Flops = Quantity<struct FlopsTag>;
using FlopsPerSec = Quantity<struct FlopsPerSecTag>;

constexpr Seconds operator/(Bytes amount, BytesPerSec rate) { return Seconds(amount.v / rate.v); }
constexpr Seconds operator/(Flops amount, FlopsPerSec rate) { return Seconds(amount.v / rate.v); }
constexpr BytesPerSec operator/(Bytes amount, Seconds time) {
  return BytesPerSec(amount.v / time.v);
}
constexpr FlopsPerSec operator/(Flops amount, Seconds time) {
  return FlopsPerSec(amount.v / time.v);
}
constexpr Bytes operator*(BytesPerSec rate, Seconds time) { return Bytes(rate.v * time.v); }
constexpr Flops operator*(FlopsPerSec rate, Seconds time) { return Flops(rate.v * time.v); }

// A count as a term of a formula.
constexpr double real(std::int64_t n) { return static_cast<double>(n); }

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double to_gib(Bytes b) { return b.v / kGiB; }
constexpr Bytes gib(double n) { return Bytes(n * kGiB); }
constexpr BytesPerSec gigabytes_per_s(double n) { return BytesPerSec(n * 1e9); }
// Network rates are quoted in gigabits per second and direction.
constexpr BytesPerSec gigabits_per_s(double n) { return BytesPerSec(n * 1e9 / 8); }
constexpr FlopsPerSec teraflops(double n) { return FlopsPerSec(n * 1e12); }
constexpr Seconds microseconds(double n) { return Seconds(n * 1e-6); }

template <typename Tag>
constexpr Quantity<Tag> max(Quantity<Tag> a, Quantity<Tag> b) {
  return a.v < b.v ? b : a;
}
template <typename Tag>
constexpr Quantity<Tag> min(Quantity<Tag> a, Quantity<Tag> b) {
  return b.v < a.v ? b : a;
}

}  // namespace copus
