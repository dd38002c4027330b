// Kernels for FP32 arrays in CPU memory. Each replaces several ATen operators, which would each go
// over the memory once. ops.cc wraps the kernels for autograd.
//
// The functions split their work with at::parallel_for. Sums are made of pieces whose size does not
// depend on the number of threads. So the results are the same, bit for bit, with any number of
// threads. REQUIRES: the arrays of a call do not overlap.
#pragma once

#include <cstdint>

namespace copus::cpu {

using Int = std::int64_t;

// Computes y = x / rms(x) * weight for each row of n. Stores 1 / rms(x) of each row in `inverse`.
void rms_norm(Int rows, Int n, float eps, const float* x, const float* weight, float* y,
              float* inverse);
// `dx` [rows, n] and `dweight` [n] may be null; then they are not computed.
void rms_norm_backward(Int rows, Int n, const float* x, const float* weight, const float* inverse,
                       const float* dy, float* dx, float* dweight);

// Both curves are x * sigmoid(t(x)). SiLU: t(x) = x. GELU's tanh form:
// t(x) = 2 sqrt(2/pi) (x + 0.044715 x^3).
enum class Curve { kSilu, kGeluTanh };
void activate(Int count, Curve curve, const float* x, float* y);
void activate_backward(Int count, Curve curve, const float* x, const float* dy, float* dx);
// y = curve(gate) * up. A row of `gate_up` is n gates, then n ups.
void gated(Int rows, Int n, Curve curve, const float* gate_up, float* y);
void gated_backward(Int rows, Int n, Curve curve, const float* gate_up, const float* dy,
                    float* dgate_up);

// Tables of cosines and sines, [length, d / 2]. Null means no rotation.
struct Rotation {
  const float* cosines = nullptr;
  const float* sines = nullptr;
};
// The memory layout of [batch, length, heads, d]: strides in elements. The last dimension is dense.
struct Heads {
  Int heads = 0;
  Int batch_stride = 0, position_stride = 0, head_stride = 0;
};
void rotate(Int batch, Int length, Int d, bool backwards, const Rotation& rotation,
            const Heads& x_at, const float* x, const Heads& y_at, float* y);

// Causal attention. The number of q's heads is a multiple of that of k and v. Queries and keys are
// rotated first, if there is a rotation. Only blocks of scores at and below the diagonal are
// computed, one block of queries at a time. No score is kept: the backward pass computes them again
// (FlashAttention, Dao et al. 2022).
struct Attention {
  Int batch = 0, length = 0, d = 0;
  Rotation rotation;
  Heads q_at, kv_at;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
};
// `out`: [batch, length, heads * d]. `log_sums` [batch, heads, length]: for each query, the log of
// the sum of exponentials of its scores.
void attention(const Attention& a, float* out, float* log_sums);
// Writes all elements of the gradients dq, dk and dv, which lie in memory as `dq_at` and `dkv_at`.
void attention_backward(const Attention& a, const float* out, const float* log_sums,
                        const float* dout, const Heads& dq_at, const Heads& dkv_at, float* dq,
                        float* dk, float* dv);

// Computes each row's cross-entropy and, if `probabilities` is not null, its softmax.
void cross_entropy(Int rows, Int classes, const float* logits, const Int* targets, float* losses,
                   float* probabilities);
// Replaces the probabilities by scale * d(sum of losses) / d(logits).
void cross_entropy_backward(Int rows, Int classes, const Int* targets, float scale,
                            float* probabilities);

// Adds row i of `values` to row rows[i] of `table`, in the order of i. Rows have n elements.
void add_rows(Int count, Int n, const Int* rows, const float* values, float* table);

}  // namespace copus::cpu
