// Converts between std::chrono, which clocks and waits use, and Seconds, which formulas and reports
// use.
#pragma once

#include <chrono>

#include "copus/base/units.h"

namespace copus {

template <typename Rep, typename Period>
constexpr Seconds to_seconds(std::chrono::duration<Rep, Period> time) {
  return Seconds(std::chrono::duration<double>(time).count());
}
constexpr std::chrono::duration<double> to_duration(Seconds time) {
  return std::chrono::duration<double>(time.v);
}
constexpr std::chrono::milliseconds to_milliseconds(Seconds time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(to_duration(time));
}

inline Seconds seconds_since(std::chrono::steady_clock::time_point begin) {
  return to_seconds(std::chrono::steady_clock::now() - begin);
}

}  // namespace copus
