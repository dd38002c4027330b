// Loops over FP32 in CPU memory, each doing what would otherwise be a chain of ATen operators and a
// pass over memory per link. ops.cc wraps them for autograd.
//
// Every function spreads its work with at::parallel_for, over pieces whose size does not depend on
// the number of threads: results are the same bit for bit at any number. Pointers do not overlap.
#pragma once

#include <cstdint>

namespace copus::cpu {

using Int = std::int64_t;

// y = x / rms(x) * weight for each row of n; `inverse` receives 1 / rms, one per row.
void rms_norm(Int rows, Int n, float eps, const float* x, const float* weight, float* y,
              float* inverse);
// `dx` [rows, n] and `dweight` [n] may be null: not wanted.
void rms_norm_backward(Int rows, Int n, const float* x, const float* weight, const float* inverse,
                       const float* dy, float* dx, float* dweight);

// Both are x * sigmoid(t(x)): t(x) = x, or gelu's tanh form 2 sqrt(2/pi) (x + 0.044715 x^3).
enum class Curve { kSilu, kGeluTanh };
void activate(Int count, Curve curve, const float* x, float* y);
void activate_backward(Int count, Curve curve, const float* x, const float* dy, float* dx);
// Rows of gate then up, 2n wide, to rows of curve(gate) * up, n wide.
void gated(Int rows, Int n, Curve curve, const float* gate_up, float* y);
void gated_backward(Int rows, Int n, Curve curve, const float* gate_up, const float* dy,
                    float* dgate_up);

// Cosines and sines, [length, d / 2]; null: no rotation.
struct Rotation {
  const float* cosines = nullptr;
  const float* sines = nullptr;
};
// Where [batch, length, heads, d] lies; the last dimension is dense.
struct Heads {
  Int heads = 0;
  Int batch_stride = 0, position_stride = 0, head_stride = 0;
};
void rotate(Int batch, Int length, Int d, bool backwards, const Rotation& rotation,
            const Heads& x_at, const float* x, const Heads& y_at, float* y);

// Causal attention, q's heads a multiple of k's and v's. Queries and keys are rotated first where
// there is a rotation. Only scores at and below the diagonal are computed, a block of queries at a
// time, and none is kept: the backward pass computes them again (FlashAttention, Dao et al. 2022).
struct Attention {
  Int batch = 0, length = 0, d = 0;
  Rotation rotation;
  Heads q_at, kv_at;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
};
// `out`: [batch, length, heads * d]; `log_sums`: [batch, heads, length], of the exponentials.
void attention(const Attention& a, float* out, float* log_sums);
// The gradients lie as q, k and v do at `dq_at` and `dkv_at`. All are written.
void attention_backward(const Attention& a, const float* out, const float* log_sums,
                        const float* dout, const Heads& dq_at, const Heads& dkv_at, float* dq,
                        float* dk, float* dv);

// Each row's cross-entropy, and where `probabilities` is not null its softmax.
void cross_entropy(Int rows, Int classes, const float* logits, const Int* targets, float* losses,
                   float* probabilities);
// In place: probabilities to scale * d(sum of losses) / d(logits).
void cross_entropy_backward(Int rows, Int classes, const Int* targets, float scale,
                            float* probabilities);

// table[rows[i]] += values[i], n wide, in the order of i.
void add_rows(Int count, Int n, const Int* rows, const float* values, float* table);

}  // namespace copus::cpu
