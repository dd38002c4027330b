// How fast this thread, or the threads that libtorch gives it, multiplies matrices on a CPU.
#pragma once

#include <cstdint>

#include "copus/base/units.h"
#include "copus/train/device/torch_api.h"

namespace copus {

// Of FP32 matrices n x n. `time_of(product)`: calls product() as often as it likes, and says how
// long one call takes.
template <typename TimeOf>
FlopsPerSec matmul_rate(std::int64_t n, const TimeOf& time_of) {
  const Tensor a = at::ones({n, n}), b = at::ones({n, n});
  Tensor c = at::empty({n, n});
  const Seconds time = time_of([&] { at::mm_out(c, a, b); });
  return Flops(2 * real(n) * real(n) * real(n)) / time;
}

}  // namespace copus
