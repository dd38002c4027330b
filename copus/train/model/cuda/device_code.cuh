// Code that the kernels share: types, wide loads, sums over a block.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cub/block/block_reduce.cuh>
#include <type_traits>

#include "copus/train/model/cuda/kernels.h"

namespace copus::cuda {

using Bf16 = __nv_bfloat16;

// Neighbouring elements that one instruction loads or stores.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};
template <typename T>
inline constexpr int kWide = 16 / sizeof(T);

__device__ inline float wide(float x) { return x; }
__device__ inline float wide(Bf16 x) { return __bfloat162float(x); }
template <typename T>
__device__ inline T narrow(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return __float2bfloat16(x);
  }
}

template <typename T, int kWidth>
__device__ inline Pack<T, kWidth> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}
template <typename T, int kWidth>
__device__ inline void store(T* to, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

// Returns the sum of x over the threads of a block, in every thread.
template <int kThreads, typename T>
__device__ inline T block_sum(T x) {
  using Reduce = cub::BlockReduce<T, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ T total;
  const T sum = Reduce(storage).Sum(x);
  if (threadIdx.x == 0) total = sum;
  __syncthreads();
  const T result = total;
  __syncthreads();  // before the next use of the storage
  return result;
}

inline bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// Calls f with a null pointer to the element type.
template <typename F>
auto with_type(Type type, const F& f) {
  return type == Type::kBf16 ? f(static_cast<Bf16*>(nullptr)) : f(static_cast<float*>(nullptr));
}
template <int kValue>
using Constant = std::integral_constant<int, kValue>;

}  // namespace copus::cuda
