#include <cmath>

#include "copus/train/model/cuda/device_code.cuh"

namespace copus::cuda {
namespace {

constexpr int kThreads = 512;

// The largest of some logits, and the sum of exp(logit - largest).
struct ScaledSum {
  float largest = -INFINITY, sum = 0;
};
struct Join {
  __device__ ScaledSum operator()(const ScaledSum& a, const ScaledSum& b) const {
    if (a.largest == -INFINITY) return b;
    if (b.largest == -INFINITY) return a;
    const float largest = fmaxf(a.largest, b.largest);
    return {largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest)};
  }
};

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    statistics(Int classes, const T* logits, Int first, float elsewhere,
               const std::int64_t* targets, float* largest, float* sum, float* target) {
  const T* row = logits + static_cast<Int>(blockIdx.x) * classes;
  ScaledSum mine;
  bool has_nan = false;
  for (Int at = static_cast<Int>(threadIdx.x) * kWidth; at < classes; at += kThreads * kWidth) {
    const Pack<T, kWidth> in = load<T, kWidth>(row + at);
    float here = -INFINITY;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      here = fmaxf(here, wide(in.at[i]));  // fmaxf ignores a NaN, so has_nan records it
      has_nan |= isnan(wide(in.at[i]));
    }
    if (here == -INFINITY) continue;
    const float top = fmaxf(mine.largest, here);
    float added = 0;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) added += __expf(wide(in.at[i]) - top);
    mine.sum = mine.sum * __expf(mine.largest - top) + added;
    mine.largest = top;
  }
  if (has_nan) mine = {0, NAN};
  using Reduce = cub::BlockReduce<ScaledSum, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const ScaledSum all = Reduce(storage).Reduce(mine, Join());
  if (threadIdx.x != 0) return;
  largest[blockIdx.x] = all.largest;
  sum[blockIdx.x] = all.sum;
  const Int column = targets[blockIdx.x] - first;
  target[blockIdx.x] = column >= 0 && column < classes ? wide(row[column]) : elsewhere;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    back(Int classes, T* logits, Int first, const std::int64_t* targets, const float* log_sums,
         const float* scale, float rows) {
  T* row = logits + static_cast<Int>(blockIdx.x) * classes;
  const Int column = targets[blockIdx.x] - first;
  const float log_sum = log_sums[blockIdx.x], factor = *scale / rows;
  for (Int at = static_cast<Int>(threadIdx.x) * kWidth; at < classes; at += kThreads * kWidth) {
    Pack<T, kWidth> pack = load<T, kWidth>(row + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float probability = __expf(wide(pack.at[i]) - log_sum);
      pack.at[i] = narrow<T>((probability - (at + i == column ? 1.0F : 0.0F)) * factor);
    }
    store(row + at, pack);
  }
}

// Calls f with a null pointer to the element type, and the width of a pack.
template <typename F>
cudaError_t with_classes(Type type, Int classes, const void* logits, const F& f) {
  return with_type(type, [&](auto* example) {
    using T = std::remove_pointer_t<decltype(example)>;
    return aligned(logits) && classes % kWide<T> == 0 ? f(example, Constant<kWide<T>>())
                                                      : f(example, Constant<1>());
  });
}

}  // namespace

cudaError_t row_statistics(Type type, Int rows, Int classes, const void* logits, Int first,
                           float elsewhere, const std::int64_t* targets, float* largest, float* sum,
                           float* target, Stream stream) {
  if (rows == 0) return cudaSuccess;
  return with_classes(type, classes, logits, [&](auto* example, auto width) {
    using T = std::remove_pointer_t<decltype(example)>;
    statistics<T, width()><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        classes, static_cast<const T*>(logits), first, elsewhere, targets, largest, sum, target);
    return cudaGetLastError();
  });
}

cudaError_t cross_entropy_backward(Type type, Int rows, Int classes, void* logits, Int first,
                                   const std::int64_t* targets, const float* log_sums,
                                   const float* scale, Stream stream) {
  if (rows == 0) return cudaSuccess;
  return with_classes(type, classes, logits, [&](auto* example, auto width) {
    using T = std::remove_pointer_t<decltype(example)>;
    back<T, width()><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        classes, static_cast<T*>(logits), first, targets, log_sums, scale,
        static_cast<float>(rows));
    return cudaGetLastError();
  });
}

}  // namespace copus::cuda
