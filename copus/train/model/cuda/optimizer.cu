#include <algorithm>

#include "copus/train/model/cuda/device_code.cuh"

namespace copus::cuda {
namespace {

constexpr int kThreads = 256;

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    update(AdamStep step, Int count, float* values, const float* gradients, float* moment1,
           float* moment2, Bf16* rounded) {
  const Int stride = static_cast<Int>(gridDim.x) * kThreads * kWidth;
  for (Int at = (static_cast<Int>(blockIdx.x) * kThreads + threadIdx.x) * kWidth; at < count;
       at += stride) {
    Pack<float, kWidth> value = load<float, kWidth>(values + at);
    Pack<float, kWidth> m = load<float, kWidth>(moment1 + at);
    Pack<float, kWidth> v = load<float, kWidth>(moment2 + at);
    const Pack<float, kWidth> gradient = load<float, kWidth>(gradients + at);
    Pack<Bf16, kWidth> low;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float g = gradient.at[i] * step.gradient_scale;
      m.at[i] += (1 - step.beta1) * (g - m.at[i]);
      v.at[i] = step.beta2 * v.at[i] + (1 - step.beta2) * g * g;
      value.at[i] = value.at[i] * step.keep -
                    step.lr * m.at[i] / (sqrtf(v.at[i]) / step.root_correction2 + step.eps);
      low.at[i] = narrow<Bf16>(value.at[i]);
    }
    store(values + at, value);
    store(moment1 + at, m);
    store(moment2 + at, v);
    if (rounded != nullptr) store(rounded + at, low);
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads) squares(Int count, const float* x, double* partial) {
  const Int stride = static_cast<Int>(gridDim.x) * kThreads * kWidth;
  double sum = 0;
  for (Int at = (static_cast<Int>(blockIdx.x) * kThreads + threadIdx.x) * kWidth; at < count;
       at += stride) {
    const Pack<float, kWidth> in = load<float, kWidth>(x + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      sum += static_cast<double>(in.at[i]) * static_cast<double>(in.at[i]);
    }
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void add_partials(int count, const double* partial, double* total) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += partial[i];
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) *total += sum;
}

unsigned blocks_for(Int count, int width, Int most) {
  const Int each = static_cast<Int>(kThreads) * width;
  return static_cast<unsigned>(std::clamp<Int>((count + each - 1) / each, 1, most));
}

}  // namespace

cudaError_t adamw(const AdamStep& step, Int count, float* values, const float* gradients,
                  float* moment1, float* moment2, void* rounded, Stream stream) {
  if (count == 0) return cudaSuccess;
  const auto launch = [&](auto width) {
    constexpr Int kMostBlocks = 1 << 20;
    update<width()><<<blocks_for(count, width(), kMostBlocks), kThreads, 0, stream>>>(
        step, count, values, gradients, moment1, moment2, static_cast<Bf16*>(rounded));
    return cudaGetLastError();
  };
  const bool is_wide = count % 4 == 0 && aligned(values) && aligned(gradients) &&
                       aligned(moment1) && aligned(moment2) &&
                       reinterpret_cast<std::uintptr_t>(rounded) % 8 == 0;
  return is_wide ? launch(Constant<4>()) : launch(Constant<1>());
}

cudaError_t add_squares(Int count, const float* x, double* partial, double* total, Stream stream) {
  if (count == 0) return cudaSuccess;
  const auto launch = [&](auto width) {
    // Each thread loads several packs, so that the second kernel has few partial sums to add.
    const unsigned blocks = blocks_for((count + 3) / 4, width(), kSquarePartials);
    squares<width()><<<blocks, kThreads, 0, stream>>>(count, x, partial);
    add_partials<<<1, kThreads, 0, stream>>>(static_cast<int>(blocks), partial, total);
    return cudaGetLastError();
  };
  return count % 4 == 0 && aligned(x) ? launch(Constant<4>()) : launch(Constant<1>());
}

}  // namespace copus::cuda
