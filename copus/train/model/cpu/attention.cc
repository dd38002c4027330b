// Causal attention on the CPU, one head at a time. Queries, keys and values of a head are first
// packed: queries and keys are rotated, queries are scaled by 1 / sqrt(d), and rows are padded with
// zeros to whole vectors. So the products below need no code for remainders.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <new>

#include "copus/train/model/cpu/kernels.h"
#include "copus/train/model/cpu/vector.h"

namespace copus::cpu {
namespace {

constexpr Int kBlock = 64;  // queries per block, so that their scores fit the cache

Int padded(Int n) { return (n + kLanes - 1) / kLanes * kLanes; }

// C[0:kRows, 0:16*kVectors] = A B, or += with `add`. A(i, p) = a[i * a_row + p * a_column]. The
// sums are in registers.
template <int kRows, int kVectors>
COPUS_INLINE void multiply_tile(Int depth, const float* a, Int a_row, Int a_column, const float* b,
                                Int b_row, float* c, Int c_row, bool add) {
  Vector sums[kRows][kVectors] = {};
  for (Int p = 0; p < depth; ++p) {
    Vector right[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) right[j] = load(b + p * b_row + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const float left = a[i * a_row + p * a_column];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] += left * right[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      float* to = c + i * c_row + j * kLanes;
      store(to, add ? load(to) + sums[i][j] : sums[i][j]);
    }
  }
}

// The same for m rows.
template <int kRows, int kVectors>
COPUS_INLINE void multiply_strip(Int m, Int depth, const float* a, Int a_row, Int a_column,
                                 const float* b, Int b_row, float* c, Int c_row, bool add) {
  Int i = 0;
  for (; i + kRows <= m; i += kRows) {
    multiply_tile<kRows, kVectors>(depth, a + i * a_row, a_row, a_column, b, b_row, c + i * c_row,
                                   c_row, add);
  }
  for (; i < m; ++i) {
    multiply_tile<1, kVectors>(depth, a + i * a_row, a_row, a_column, b, b_row, c + i * c_row,
                               c_row, add);
  }
}

template <int kRows, int kVectors>
COPUS_INLINE void multiply_by_tiles(Int m, Int n, Int depth, const float* a, Int a_row,
                                    Int a_column, const float* b, Int b_row, float* c, Int c_row,
                                    bool add) {
  Int j = 0;
  for (; j + kVectors * kLanes <= n; j += kVectors * kLanes) {
    multiply_strip<kRows, kVectors>(m, depth, a, a_row, a_column, b + j, b_row, c + j, c_row, add);
  }
  for (; j < n; j += kLanes) {
    multiply_strip<kRows, 1>(m, depth, a, a_row, a_column, b + j, b_row, c + j, c_row, add);
  }
}

// C[m, n] = A[m, depth] B[depth, n], or += with `add`. REQUIRES: n is a multiple of kLanes. The
// size of a tile is chosen to fit the registers: 32 registers of 16 floats, or 16 of 8 or 4 floats.
COPUS_EVERY_X86 void multiply(bool many_registers, Int m, Int n, Int depth, const float* a,
                              Int a_row, Int a_column, const float* b, Int b_row, float* c,
                              Int c_row, bool add) {
  if (many_registers) {
    multiply_by_tiles<8, 2>(m, n, depth, a, a_row, a_column, b, b_row, c, c_row, add);
  } else {
    multiply_by_tiles<4, 1>(m, n, depth, a, a_row, a_column, b, b_row, c, c_row, add);
  }
}

bool has_many_registers() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512f") != 0;
  return has;
#else
  return false;
#endif
}

// Copies a head's [length, d] to [length, width], rotated and scaled.
COPUS_EVERY_X86 void pack(Int length, Int d, Int width, const Rotation& rotation, float scale,
                          const float* from, Int stride, float* to) {
  const Int half = d / 2;
  for (Int row = 0; row < length; ++row, from += stride, to += width) {
    if (rotation.cosines == nullptr) {
      for (Int i = 0; i < d; ++i) to[i] = from[i] * scale;
    } else {
      const float* cosines = rotation.cosines + row * half;
      const float* sines = rotation.sines + row * half;
      for (Int i = 0; i < half; ++i) {
        to[i] = (from[i] * cosines[i] - from[half + i] * sines[i]) * scale;
        to[half + i] = (from[half + i] * cosines[i] + from[i] * sines[i]) * scale;
      }
    }
    for (Int i = d; i < width; ++i) to[i] = 0;
  }
}

// The transpose of pack(), for gradients: it rotates back.
COPUS_EVERY_X86 void unpack(Int length, Int d, Int width, const Rotation& rotation, float scale,
                            const float* from, float* to, Int stride) {
  const Int half = d / 2;
  for (Int row = 0; row < length; ++row, from += width, to += stride) {
    if (rotation.cosines == nullptr) {
      for (Int i = 0; i < d; ++i) to[i] = from[i] * scale;
      continue;
    }
    const float* cosines = rotation.cosines + row * half;
    const float* sines = rotation.sines + row * half;
    for (Int i = 0; i < half; ++i) {
      to[i] = (from[i] * cosines[i] + from[half + i] * sines[i]) * scale;
      to[half + i] = (from[half + i] * cosines[i] - from[i] * sines[i]) * scale;
    }
  }
}

// Transposes [length, width] to [width, columns]. Columns from `length` on become zero.
void transpose(Int length, Int width, const float* from, Int columns, float* to) {
  for (Int first = 0; first < columns; first += kLanes) {
    const Int count = std::clamp<Int>(length - first, 0, kLanes);
    for (Int i = 0; i < width; ++i) {
      float* row = to + i * columns + first;
      for (Int k = 0; k < count; ++k) row[k] = from[(first + k) * width + i];
      for (Int k = count; k < kLanes; ++k) row[k] = 0;
    }
  }
}

// Replaces the scores by exp(score - largest score), and by zero from `valid` to `n`. Returns the
// largest score and the sum of the exponentials.
struct RowSum {
  float largest, total;
};
COPUS_EVERY_X86 RowSum exponentials(Int valid, Int n, float* scores) {
  constexpr float kLowest = -3.0e38F;
  const Int whole = valid / kLanes * kLanes;
  Vector most = Vector{} + kLowest;
  for (Int i = 0; i < whole; i += kLanes) most = larger(load(scores + i), most);
  if (whole < valid) most = larger(load_some(scores + whole, valid - whole, kLowest), most);
  const float top = largest(most);
  Vector sums{};
  for (Int i = 0; i < whole; i += kLanes) {
    const Vector e = exponential(load(scores + i) - top);
    sums += e;
    store(scores + i, e);
  }
  float total = sum(sums);
  if (whole < valid) {
    const Vector e = exponential(load(scores + whole) - top);
    for (Int i = 0; i < valid - whole; ++i) total += e[i];
    store(scores + whole, e);
  }
  for (Int i = valid; i < n; ++i) scores[i] = 0;
  return {top, total};
}

// Replaces scores by probabilities, and gradients of the probabilities by those of the scores.
COPUS_EVERY_X86 void softmax_backward(Int valid, Int n, float log_sum, float delta, float* scores,
                                      float* gradients) {
  for (Int i = 0; i < padded(valid); i += kLanes) {
    const Vector p = exponential(load(scores + i) - log_sum);
    store(scores + i, p);
    store(gradients + i, p * (load(gradients + i) - delta));
  }
  for (Int i = valid; i < n; ++i) scores[i] = gradients[i] = 0;
}

COPUS_EVERY_X86 void scale_rows(Int rows, Int d, const float* scales, const float* from, Int width,
                                float* to, Int stride) {
  for (Int row = 0; row < rows; ++row) {
    for (Int i = 0; i < d; ++i) to[row * stride + i] = from[row * width + i] * scales[row];
  }
}

COPUS_EVERY_X86 void row_products(Int rows, Int d, const float* a, const float* b, Int stride,
                                  float* products) {
  for (Int row = 0; row < rows; ++row, a += stride, b += stride) {
    Vector sums{};
    Int i = 0;
    for (; i + kLanes <= d; i += kLanes) sums += load(a + i) * load(b + i);
    float total = sum(sums);
    for (; i < d; ++i) total += a[i] * b[i];
    products[row] = total;
  }
}

// The sizes of one head's data.
struct HeadSizes {
  explicit HeadSizes(const Attention& a)
      : length(a.length),
        width(padded(a.d)),
        columns(padded(a.length)),
        packed(length * width),
        scores(kBlock * columns),
        group(a.q_at.heads / a.kv_at.heads),
        scale(1.0F / std::sqrt(static_cast<float>(a.d))),
        many_registers(has_many_registers()) {}

  // Computes the scores of queries [first, last) with all keys that any of them may see.
  void score(Int first, Int last, const float* q, const float* k_transposed, float* to) const {
    multiply(many_registers, last - first, padded(last), width, q + first * width, width, 1,
             k_transposed, columns, to, columns, false);
  }

  Int length, width, columns;
  Int packed, scores;  // elements
  Int group;           // query heads per key head
  float scale;
  bool many_registers;
};

// Uninitialised memory that begins at a cache line.
class Scratch {
 public:
  explicit Scratch(Int elements)
      : data_(static_cast<float*>(
            ::operator new(static_cast<std::size_t>(elements) * sizeof(float), kLine))) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { ::operator delete(data_, kLine); }
  float* data() const { return data_; }

 private:
  static constexpr std::align_val_t kLine{64};
  float* data_;
};

}  // namespace

void attention(const Attention& a, float* out, float* log_sums) {
  const HeadSizes s(a);
  const Int out_stride = a.q_at.heads * a.d;
  at::parallel_for(0, a.batch * a.kv_at.heads, 1, [&](Int begin, Int end) {
    const Scratch memory(3 * s.packed + s.width * s.columns + s.scores + kBlock * (s.width + 1));
    float* q = memory.data();
    float* k = q + s.packed;
    float* v = k + s.packed;
    float* k_transposed = v + s.packed;
    float* scores = k_transposed + s.width * s.columns;
    float* mixed = scores + s.scores;
    float* inverse_sums = mixed + kBlock * s.width;
    for (Int task = begin; task < end; ++task) {
      const Int batch = task / a.kv_at.heads, kv_head = task % a.kv_at.heads;
      const Int kv_at = batch * a.kv_at.batch_stride + kv_head * a.kv_at.head_stride;
      pack(s.length, a.d, s.width, a.rotation, 1, a.k + kv_at, a.kv_at.position_stride, k);
      pack(s.length, a.d, s.width, {}, 1, a.v + kv_at, a.kv_at.position_stride, v);
      transpose(s.length, s.width, k, s.columns, k_transposed);
      for (Int head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head) {
        pack(s.length, a.d, s.width, a.rotation, s.scale,
             a.q + batch * a.q_at.batch_stride + head * a.q_at.head_stride, a.q_at.position_stride,
             q);
        for (Int first = 0; first < s.length; first += kBlock) {
          const Int last = std::min(first + kBlock, s.length), seen = padded(last);
          s.score(first, last, q, k_transposed, scores);
          for (Int row = first; row < last; ++row) {
            const RowSum sums = exponentials(row + 1, seen, scores + (row - first) * s.columns);
            inverse_sums[row - first] = 1.0F / sums.total;
            log_sums[(batch * a.q_at.heads + head) * s.length + row] =
                sums.largest + std::log(sums.total);
          }
          multiply(s.many_registers, last - first, s.width, last, scores, s.columns, 1, v, s.width,
                   mixed, s.width, false);
          scale_rows(last - first, a.d, inverse_sums, mixed, s.width,
                     out + (batch * s.length + first) * out_stride + head * a.d, out_stride);
        }
      }
    }
  });
}

void attention_backward(const Attention& a, const float* out, const float* log_sums,
                        const float* dout, const Heads& dq_at, const Heads& dkv_at, float* dq,
                        float* dk, float* dv) {
  const HeadSizes s(a);
  const Int out_stride = a.q_at.heads * a.d;
  at::parallel_for(0, a.batch * a.kv_at.heads, 1, [&](Int begin, Int end) {
    const Scratch memory(7 * s.packed + 2 * s.width * s.columns + 2 * s.scores + s.length);
    float* q = memory.data();
    float* k = q + s.packed;
    float* v = k + s.packed;
    float* dmixed = v + s.packed;
    float* dq_packed = dmixed + s.packed;
    float* dk_packed = dq_packed + s.packed;
    float* dv_packed = dk_packed + s.packed;
    float* k_transposed = dv_packed + s.packed;
    float* v_transposed = k_transposed + s.width * s.columns;
    float* scores = v_transposed + s.width * s.columns;
    float* dscores = scores + s.scores;
    float* deltas = dscores + s.scores;
    for (Int task = begin; task < end; ++task) {
      const Int batch = task / a.kv_at.heads, kv_head = task % a.kv_at.heads;
      const Int kv_at = batch * a.kv_at.batch_stride + kv_head * a.kv_at.head_stride;
      pack(s.length, a.d, s.width, a.rotation, 1, a.k + kv_at, a.kv_at.position_stride, k);
      pack(s.length, a.d, s.width, {}, 1, a.v + kv_at, a.kv_at.position_stride, v);
      transpose(s.length, s.width, k, s.columns, k_transposed);
      transpose(s.length, s.width, v, s.columns, v_transposed);
      std::fill_n(dk_packed, 2 * s.packed, 0.0F);
      for (Int head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head) {
        pack(s.length, a.d, s.width, a.rotation, s.scale,
             a.q + batch * a.q_at.batch_stride + head * a.q_at.head_stride, a.q_at.position_stride,
             q);
        const Int out_at = batch * s.length * out_stride + head * a.d;
        pack(s.length, a.d, s.width, {}, 1, dout + out_at, out_stride, dmixed);
        row_products(s.length, a.d, out + out_at, dout + out_at, out_stride, deltas);
        const float* head_log_sums = log_sums + (batch * a.q_at.heads + head) * s.length;
        for (Int first = 0; first < s.length; first += kBlock) {
          const Int last = std::min(first + kBlock, s.length), rows = last - first;
          const Int seen = padded(last);
          s.score(first, last, q, k_transposed, scores);
          s.score(first, last, dmixed, v_transposed, dscores);
          for (Int row = first; row < last; ++row) {
            const Int at = (row - first) * s.columns;
            softmax_backward(row + 1, seen, head_log_sums[row], deltas[row], scores + at,
                             dscores + at);
          }
          const auto product = [&](Int m, Int depth, const float* left, Int row, Int column,
                                   const float* right, float* to, bool add) {
            multiply(s.many_registers, m, s.width, depth, left, row, column, right, s.width, to,
                     s.width, add);
          };
          product(rows, last, dscores, s.columns, 1, k, dq_packed + first * s.width, false);
          product(last, rows, dscores, 1, s.columns, q + first * s.width, dk_packed, true);
          product(last, rows, scores, 1, s.columns, dmixed + first * s.width, dv_packed, true);
        }
        unpack(s.length, a.d, s.width, a.rotation, s.scale, dq_packed,
               dq + batch * dq_at.batch_stride + head * dq_at.head_stride, dq_at.position_stride);
      }
      const Int dkv_from = batch * dkv_at.batch_stride + kv_head * dkv_at.head_stride;
      unpack(s.length, a.d, s.width, a.rotation, 1, dk_packed, dk + dkv_from,
             dkv_at.position_stride);
      unpack(s.length, a.d, s.width, {}, 1, dv_packed, dv + dkv_from, dkv_at.position_stride);
    }
  });
}

}  // namespace copus::cpu
