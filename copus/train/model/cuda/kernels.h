// CUDA kernels for dense arrays in GPU memory. Each kernel is one pass over memory; the ATen
// operators that it replaces would take several. cuda/ops.cc wraps them for autograd and for the
// optimizer.
//
// Values are FP32 or BF16. Sums are FP32; sums over whole tensors are double. Results depend only
// on the inputs, since no kernel adds by atomics. Each function starts its kernels on `stream` and
// returns the runtime's error code of the launch. The kernels use no libtorch, and nothing that
// hipify cannot translate.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace copus::cuda {

using Int = std::int64_t;
enum class Type { kFp32, kBf16 };
using Stream = cudaStream_t;

// The norm kernels take rows of n elements if n is at most longest_norm_row(type, n).
Int longest_norm_row(Type type, Int n);

// Computes sum = x + delta and y = sum / rms(sum) * weight for each row of n. Stores 1 / rms(sum)
// of each row in `inverse`. If `delta` is null, the sum is x, and `sum` is not written.
cudaError_t rms_norm(Type type, Int rows, Int n, float eps, const void* x, const void* delta,
                     const void* weight, void* sum, void* y, float* inverse, Stream stream);
// Sets dx to the gradient of y's input, plus `dsum` if that is not null. Stores parts of the
// weight's gradient in `partial` [norm_partials(rows), n], for add_columns(), unless it is null.
Int norm_partials(Int rows);
cudaError_t rms_norm_backward(Type type, Int rows, Int n, const void* x, const void* weight,
                              const float* inverse, const void* dy, const void* dsum, void* dx,
                              float* partial, Stream stream);
// Adds the sums of the columns of `part` [rows, n] to total[n].
cudaError_t add_columns(Int rows, Int n, const float* part, float* total, Stream stream);

enum class Curve { kSilu, kGeluTanh };
// y = curve(gate) * up. A row of `gate_up` is n gates, then n ups.
cudaError_t gated(Type type, Curve curve, Int rows, Int n, const void* gate_up, void* y,
                  Stream stream);
cudaError_t gated_backward(Type type, Curve curve, Int rows, Int n, const void* gate_up,
                           const void* dy, void* dgate_up, Stream stream);

// An array [batch, length, heads, d] whose last dimension is dense. Strides are in elements.
struct Heads {
  void* data = nullptr;
  Int heads = 0;
  Int batch_stride = 0, position_stride = 0, head_stride = 0;
};
// split_heads() copies the dense array qkv [batch, length, q.heads + 2 k.heads, d] to its parts,
// and join_heads() copies the parts back. split_heads() rotates queries and keys by the tables
// [length, d / 2], and join_heads() rotates them back. Null tables mean no rotation.
cudaError_t split_heads(Type type, Int batch, Int length, Int d, const void* qkv,
                        const float* cosines, const float* sines, Heads q, Heads k, Heads v,
                        Stream stream);
cudaError_t join_heads(Type type, Int batch, Int length, Int d, Heads q, Heads k, Heads v,
                       const float* cosines, const float* sines, void* qkv, Stream stream);

// Computes for each row of logits: the largest logit, the sum of exp(logit - largest), and the
// logit of the row's target. Column i is class `first` + i. If the target is not among these
// classes, its logit is `elsewhere`.
cudaError_t row_statistics(Type type, Int rows, Int classes, const void* logits, Int first,
                           float elsewhere, const std::int64_t* targets, float* largest, float* sum,
                           float* target, Stream stream);
// Replaces the logits by (softmax - one-hot of the target) * *scale / rows. `log_sums`: for each
// row, the log of the sum of exponentials of its logits.
cudaError_t cross_entropy_backward(Type type, Int rows, Int classes, void* logits, Int first,
                                   const std::int64_t* targets, const float* log_sums,
                                   const float* scale, Stream stream);

// Makes an AdamW update of FP32 arrays. Stores the values in BF16 in `rounded`, unless it is null.
struct AdamStep {
  float beta1, beta2, eps;
  float keep;              // the share of a value that weight decay leaves
  float lr;                // learning rate, divided by the bias correction of the first moment
  float root_correction2;  // square root of the bias correction of the second moment
  float gradient_scale;
};
cudaError_t adamw(const AdamStep& step, Int count, float* values, const float* gradients,
                  float* moment1, float* moment2, void* rounded, Stream stream);

// Adds the sum of squares of x to *total. `partial` has room for kSquarePartials numbers.
inline constexpr Int kSquarePartials = 2048;
cudaError_t add_squares(Int count, const float* x, double* partial, double* total, Stream stream);

}  // namespace copus::cuda
