// Measures how fast libtorch multiplies matrices on a CPU, on as many threads as the calling thread
// may use.
#pragma once

#include <cstdint>

#include "copus/base/units.h"
#include "copus/train/device/torch_api.h"

namespace copus {

// Returns the rate for FP32 matrices of n x n elements. `time_of(product)` calls product() as often
// as it needs to, and returns the time of one call.
template <typename TimeOf>
FlopsPerSec matmul_rate(std::int64_t n, const TimeOf& time_of) {
  const Tensor a = at::ones({n, n}), b = at::ones({n, n});
  Tensor c = at::empty({n, n});
  const Seconds time = time_of([&] { at::mm_out(c, a, b); });
  return Flops(2 * real(n) * real(n) * real(n)) / time;
}

}  // namespace copus
