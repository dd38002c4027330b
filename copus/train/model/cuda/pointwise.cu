#include "copus/train/model/cuda/device_code.cuh"

namespace copus::cuda {
namespace {

constexpr int kThreads = 256;

// The value and the slope of x * sigmoid(t(x)). SiLU: t(x) = x. GELU's tanh form:
// t(x) = 2 sqrt(2/pi) (x + 0.044715 x^3).
template <Curve kCurve>
struct Curved {
  float value, slope;
  __device__ explicit Curved(float x) {
    constexpr float kRoot = 1.5957691216057308F, kCube = 0.044715F;
    float t = x, dt = 1;
    if constexpr (kCurve == Curve::kGeluTanh) {
      t = kRoot * (x + kCube * x * x * x);
      dt = kRoot * (1 + 3 * kCube * x * x);
    }
    const float sigmoid = 1 / (1 + __expf(-t));
    value = x * sigmoid;
    slope = sigmoid * (1 + x * (1 - sigmoid) * dt);
  }
};

// Each block handles one row.
template <Curve kCurve, typename T, int kWidth>
__global__ void gated_forward(Int n, const T* gate_up, T* y) {
  const T* from = gate_up + static_cast<Int>(blockIdx.x) * 2 * n;
  T* to = y + static_cast<Int>(blockIdx.x) * n;
  for (Int at = threadIdx.x * kWidth; at < n; at += static_cast<Int>(blockDim.x) * kWidth) {
    const Pack<T, kWidth> gate = load<T, kWidth>(from + at), up = load<T, kWidth>(from + n + at);
    Pack<T, kWidth> out;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      out.at[i] = narrow<T>(Curved<kCurve>(wide(gate.at[i])).value * wide(up.at[i]));
    }
    store(to + at, out);
  }
}

template <Curve kCurve, typename T, int kWidth>
__global__ void gated_back(Int n, const T* gate_up, const T* dy, T* dgate_up) {
  const T* from = gate_up + static_cast<Int>(blockIdx.x) * 2 * n;
  const T* slope = dy + static_cast<Int>(blockIdx.x) * n;
  T* to = dgate_up + static_cast<Int>(blockIdx.x) * 2 * n;
  for (Int at = threadIdx.x * kWidth; at < n; at += static_cast<Int>(blockDim.x) * kWidth) {
    const Pack<T, kWidth> gate = load<T, kWidth>(from + at), up = load<T, kWidth>(from + n + at);
    const Pack<T, kWidth> d = load<T, kWidth>(slope + at);
    Pack<T, kWidth> dgate, dup;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const Curved<kCurve> curve(wide(gate.at[i]));
      dgate.at[i] = narrow<T>(wide(d.at[i]) * wide(up.at[i]) * curve.slope);
      dup.at[i] = narrow<T>(wide(d.at[i]) * curve.value);
    }
    store(to + at, dgate);
    store(to + n + at, dup);
  }
}

// Calls f with a null pointer to the element type, the width of a pack, and the curve.
template <typename F>
cudaError_t with_gate(Type type, Curve curve, Int n, bool is_aligned, const F& f) {
  return with_type(type, [&](auto* example) {
    using T = std::remove_pointer_t<decltype(example)>;
    const auto with_curve = [&](auto width) {
      return curve == Curve::kSilu
                 ? f(example, width, Constant<static_cast<int>(Curve::kSilu)>())
                 : f(example, width, Constant<static_cast<int>(Curve::kGeluTanh)>());
    };
    return is_aligned && n % kWide<T> == 0 ? with_curve(Constant<kWide<T>>())
                                           : with_curve(Constant<1>());
  });
}

template <typename T>
struct HeadsOf {
  T* data;
  Int batch_stride, position_stride, head_stride;
  __device__ T* at(Int batch, Int position, Int head) const {
    return data + batch * batch_stride + position * position_stride + head * head_stride;
  }
};
template <typename T>
HeadsOf<T> of_type(const Heads& heads) {
  return {static_cast<T*>(heads.data), heads.batch_stride, heads.position_stride,
          heads.head_stride};
}

// Each block handles one token. Element i of a head's first half is rotated together with element i
// of its second half.
template <typename T, int kWidth, bool kJoins>
__global__ void turn_heads(Int length, int half, int heads, int kv, T* qkv, const float* cosines,
                           const float* sines, HeadsOf<T> q, HeadsOf<T> k, HeadsOf<T> v) {
  const Int token = blockIdx.x, batch = token / length, position = token % length;
  const int packs = half / kWidth, all = heads + 2 * kv;
  for (int j = static_cast<int>(threadIdx.x); j < all * packs; j += static_cast<int>(blockDim.x)) {
    const int head = j / packs, i = j % packs * kWidth;
    T* whole = qkv + (token * all + head) * 2 * half + i;
    T* part = (head < heads        ? q.at(batch, position, head)
               : head < heads + kv ? k.at(batch, position, head - heads)
                                   : v.at(batch, position, head - heads - kv)) +
              i;
    const T* from = kJoins ? part : whole;
    T* to = kJoins ? whole : part;
    Pack<T, kWidth> first = load<T, kWidth>(from), second = load<T, kWidth>(from + half);
    if (cosines != nullptr && head < heads + kv) {
      const float* cosine = cosines + position * half + i;
      const float* sine = sines + position * half + i;
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const float a = wide(first.at[e]), b = wide(second.at[e]);
        const float c = cosine[e], s = kJoins ? -sine[e] : sine[e];
        first.at[e] = narrow<T>(a * c - b * s);
        second.at[e] = narrow<T>(b * c + a * s);
      }
    }
    store(to, first);
    store(to + half, second);
  }
}

bool wide_strides(const Heads& heads, int width) {
  return aligned(heads.data) && heads.batch_stride % width == 0 &&
         heads.position_stride % width == 0 && heads.head_stride % width == 0;
}

template <bool kJoins>
cudaError_t turn(Type type, Int batch, Int length, Int d, void* qkv, const float* cosines,
                 const float* sines, const Heads& q, const Heads& k, const Heads& v,
                 Stream stream) {
  if (batch * length == 0) return cudaSuccess;
  return with_type(type, [&](auto* example) {
    using T = std::remove_pointer_t<decltype(example)>;
    const auto launch = [&](auto width) {
      turn_heads<T, width(), kJoins>
          <<<static_cast<unsigned>(batch * length), kThreads, 0, stream>>>(
              length, static_cast<int>(d / 2), static_cast<int>(q.heads), static_cast<int>(k.heads),
              static_cast<T*>(qkv), cosines, sines, of_type<T>(q), of_type<T>(k), of_type<T>(v));
      return cudaGetLastError();
    };
    constexpr int kWidth = kWide<T>;
    const bool is_wide = d / 2 % kWidth == 0 && aligned(qkv) && wide_strides(q, kWidth) &&
                         wide_strides(k, kWidth) && wide_strides(v, kWidth);
    return is_wide ? launch(Constant<kWidth>()) : launch(Constant<1>());
  });
}

}  // namespace

cudaError_t gated(Type type, Curve curve, Int rows, Int n, const void* gate_up, void* y,
                  Stream stream) {
  if (rows == 0) return cudaSuccess;
  return with_gate(type, curve, n, aligned(gate_up) && aligned(y),
                   [&](auto* example, auto width, auto which) {
                     using T = std::remove_pointer_t<decltype(example)>;
                     gated_forward<static_cast<Curve>(which()), T, width()>
                         <<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
                             n, static_cast<const T*>(gate_up), static_cast<T*>(y));
                     return cudaGetLastError();
                   });
}

cudaError_t gated_backward(Type type, Curve curve, Int rows, Int n, const void* gate_up,
                           const void* dy, void* dgate_up, Stream stream) {
  if (rows == 0) return cudaSuccess;
  return with_gate(type, curve, n, aligned(gate_up) && aligned(dy) && aligned(dgate_up),
                   [&](auto* example, auto width, auto which) {
                     using T = std::remove_pointer_t<decltype(example)>;
                     gated_back<static_cast<Curve>(which()), T, width()>
                         <<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
                             n, static_cast<const T*>(gate_up), static_cast<const T*>(dy),
                             static_cast<T*>(dgate_up));
                     return cudaGetLastError();
                   });
}

cudaError_t split_heads(Type type, Int batch, Int length, Int d, const void* qkv,
                        const float* cosines, const float* sines, Heads q, Heads k, Heads v,
                        Stream stream) {
  return turn<false>(type, batch, length, d, const_cast<void*>(qkv), cosines, sines, q, k, v,
                     stream);
}

cudaError_t join_heads(Type type, Int batch, Int length, Int d, Heads q, Heads k, Heads v,
                       const float* cosines, const float* sines, void* qkv, Stream stream) {
  return turn<true>(type, batch, length, d, qkv, cosines, sines, q, k, v, stream);
}

}  // namespace copus::cuda
