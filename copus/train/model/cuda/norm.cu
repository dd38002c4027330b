#include <algorithm>

#include "copus/train/model/cuda/device_code.cuh"

namespace copus::cuda {
namespace {

// Each block handles one row, which it keeps in registers: each thread has kItems packs of kWidth
// elements.
template <typename T, int kWidth, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads) forward(Int n, float eps, const T* x, const T* delta,
                                                    const T* weight, T* sum, T* y, float* inverse) {
  const Int row = blockIdx.x;
  const int packs = static_cast<int>(n / kWidth);
  float kept[kItems][kWidth];
  float squares = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int at = item * kThreads + static_cast<int>(threadIdx.x);
    if (at >= packs) continue;
    const Int offset = row * n + static_cast<Int>(at) * kWidth;
    Pack<T, kWidth> in = load<T, kWidth>(x + offset);
    if (delta != nullptr) {
      const Pack<T, kWidth> more = load<T, kWidth>(delta + offset);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) in.at[i] = narrow<T>(wide(in.at[i]) + wide(more.at[i]));
      store(sum + offset, in);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      kept[item][i] = wide(in.at[i]);
      squares += kept[item][i] * kept[item][i];
    }
  }
  const float scale = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(n) + eps);
  if (threadIdx.x == 0) inverse[row] = scale;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int at = item * kThreads + static_cast<int>(threadIdx.x);
    if (at >= packs) continue;
    const Pack<T, kWidth> w = load<T, kWidth>(weight + static_cast<Int>(at) * kWidth);
    Pack<T, kWidth> out;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) out.at[i] = narrow<T>(kept[item][i] * scale * wide(w.at[i]));
    store(y + row * n + static_cast<Int>(at) * kWidth, out);
  }
}

// Each block handles several rows, and keeps its part of the weight's gradient in registers.
template <typename T, int kWidth, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads)
    backward(Int rows, Int n, const T* x, const T* weight, const float* inverse, const T* dy,
             const T* dsum, T* dx, float* partial) {
  const int packs = static_cast<int>(n / kWidth);
  float dweight[kItems][kWidth] = {};
  for (Int row = blockIdx.x; row < rows; row += gridDim.x) {
    const float scale = inverse[row];
    float normal[kItems][kWidth], slope[kItems][kWidth];
    float along = 0;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int at = item * kThreads + static_cast<int>(threadIdx.x);
      if (at >= packs) continue;
      const Int offset = row * n + static_cast<Int>(at) * kWidth;
      const Pack<T, kWidth> in = load<T, kWidth>(x + offset);
      const Pack<T, kWidth> out = load<T, kWidth>(dy + offset);
      const Pack<T, kWidth> w = load<T, kWidth>(weight + static_cast<Int>(at) * kWidth);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        normal[item][i] = wide(in.at[i]) * scale;
        slope[item][i] = wide(out.at[i]) * wide(w.at[i]);
        along += normal[item][i] * slope[item][i];
        dweight[item][i] += wide(out.at[i]) * normal[item][i];
      }
    }
    along = block_sum<kThreads>(along) / static_cast<float>(n);
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int at = item * kThreads + static_cast<int>(threadIdx.x);
      if (at >= packs) continue;
      const Int offset = row * n + static_cast<Int>(at) * kWidth;
      Pack<T, kWidth> more, result;
      if (dsum != nullptr) more = load<T, kWidth>(dsum + offset);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float own = scale * (slope[item][i] - normal[item][i] * along);
        result.at[i] = narrow<T>(dsum != nullptr ? own + wide(more.at[i]) : own);
      }
      store(dx + offset, result);
    }
  }
  if (partial == nullptr) return;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    const int at = item * kThreads + static_cast<int>(threadIdx.x);
    if (at >= packs) continue;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      partial[static_cast<Int>(blockIdx.x) * n + static_cast<Int>(at) * kWidth + i] =
          dweight[item][i];
    }
  }
}

constexpr int kColumns = 32, kParts = 16;
__global__ void columns(Int rows, Int n, const float* part, float* total) {
  __shared__ float sums[kParts][kColumns];
  const Int column = static_cast<Int>(blockIdx.x) * kColumns + threadIdx.x;
  float sum = 0;
  if (column < n) {
    for (Int row = threadIdx.y; row < rows; row += kParts) sum += part[row * n + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= n) return;
  for (int i = 1; i < kParts; ++i) sum += sums[i][threadIdx.x];
  total[column] += sum;
}

// Calls f with numbers of threads and items that can hold so many packs. Returns
// cudaErrorInvalidValue if there are too many packs.
template <typename F>
cudaError_t with_shape(Int packs, const F& f) {
  if (packs <= 64) return f(Constant<64>(), Constant<1>());
  if (packs <= 128) return f(Constant<128>(), Constant<1>());
  if (packs <= 256) return f(Constant<256>(), Constant<1>());
  if (packs <= 512) return f(Constant<512>(), Constant<1>());
  if (packs <= 1024) return f(Constant<512>(), Constant<2>());
  if (packs <= 2048) return f(Constant<512>(), Constant<4>());
  return cudaErrorInvalidValue;
}
constexpr Int kMostPacks = 2048;

// Calls f with a null pointer to the element type, the width of a pack, the threads of a block and
// the items of a thread.
template <typename F>
cudaError_t with_row(Type type, Int n, bool is_aligned, const F& f) {
  return with_type(type, [&](auto* example) {
    using T = std::remove_pointer_t<decltype(example)>;
    if (is_aligned && n % kWide<T> == 0) {
      return with_shape(n / kWide<T>, [&](auto threads, auto items) {
        return f(example, Constant<kWide<T>>(), threads, items);
      });
    }
    return with_shape(
        n, [&](auto threads, auto items) { return f(example, Constant<1>(), threads, items); });
  });
}

}  // namespace

Int longest_norm_row(Type type, Int n) {
  const Int width = type == Type::kBf16 ? kWide<Bf16> : kWide<float>;
  return kMostPacks * (n % width == 0 ? width : 1);
}

cudaError_t rms_norm(Type type, Int rows, Int n, float eps, const void* x, const void* delta,
                     const void* weight, void* sum, void* y, float* inverse, Stream stream) {
  if (rows == 0) return cudaSuccess;
  const bool is_aligned =
      aligned(x) && aligned(delta) && aligned(weight) && aligned(sum) && aligned(y);
  return with_row(type, n, is_aligned, [&](auto* example, auto width, auto threads, auto items) {
    using T = std::remove_pointer_t<decltype(example)>;
    forward<T, width(), threads(), items()><<<static_cast<unsigned>(rows), threads(), 0, stream>>>(
        n, eps, static_cast<const T*>(x), static_cast<const T*>(delta),
        static_cast<const T*>(weight), static_cast<T*>(sum), static_cast<T*>(y), inverse);
    return cudaGetLastError();
  });
}

// The limit is enough blocks to fill any GPU, but few enough that their partial sums are small
// compared with the rows that they add up.
Int norm_partials(Int rows) { return std::min<Int>(rows, 1024); }

cudaError_t rms_norm_backward(Type type, Int rows, Int n, const void* x, const void* weight,
                              const float* inverse, const void* dy, const void* dsum, void* dx,
                              float* partial, Stream stream) {
  if (rows == 0) return cudaSuccess;
  const bool is_aligned =
      aligned(x) && aligned(weight) && aligned(dy) && aligned(dsum) && aligned(dx);
  return with_row(type, n, is_aligned, [&](auto* example, auto width, auto threads, auto items) {
    using T = std::remove_pointer_t<decltype(example)>;
    backward<T, width(), threads(), items()>
        <<<static_cast<unsigned>(norm_partials(rows)), threads(), 0, stream>>>(
            rows, n, static_cast<const T*>(x), static_cast<const T*>(weight), inverse,
            static_cast<const T*>(dy), static_cast<const T*>(dsum), static_cast<T*>(dx), partial);
    return cudaGetLastError();
  });
}

cudaError_t add_columns(Int rows, Int n, const float* part, float* total, Stream stream) {
  columns<<<static_cast<unsigned>((n + kColumns - 1) / kColumns), dim3(kColumns, kParts), 0,
            stream>>>(rows, n, part, total);
  return cudaGetLastError();
}

}  // namespace copus::cuda
