// CUDA kernels over dense arrays in GPU memory: each is one pass over memory where a chain of ATen
// operators is several. ops.cc wraps them for autograd, optimizer.cc for the optimizer.
//
// Values are FP32 or BF16; sums are FP32 (of whole tensors, double). Results depend on nothing but
// the inputs: no kernel adds by atomics. Each function starts its kernels on `stream` and returns
// what the runtime says of the launch. No libtorch, and nothing that hipify does not know.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace copus::cuda {

using Int = std::int64_t;
enum class Type { kFp32, kBf16 };
using Stream = cudaStream_t;

// Rows of more elements than this have no norm kernel.
Int longest_norm_row(Type type, Int n);

// sum = x + delta, y = sum / rms(sum) * weight, for each row of n; `inverse` receives 1 / rms. A
// null delta: the sum is x, and `sum` is not written.
cudaError_t rms_norm(Type type, Int rows, Int n, float eps, const void* x, const void* delta,
                     const void* weight, void* sum, void* y, float* inverse, Stream stream);
// dx = the gradient of y's input, plus `dsum` where that is not null. `partial`
// [norm_partials(rows, n), n] receives parts of the weight's gradient, for add_columns(); null: not
// wanted.
Int norm_partials(Int rows);
cudaError_t rms_norm_backward(Type type, Int rows, Int n, const void* x, const void* weight,
                              const float* inverse, const void* dy, const void* dsum, void* dx,
                              float* partial, Stream stream);
// total[n] += the sums of the columns of part [rows, n].
cudaError_t add_columns(Int rows, Int n, const float* part, float* total, Stream stream);

enum class Curve { kSilu, kGeluTanh };
// Rows of gate then up, 2n wide, to rows of curve(gate) * up, n wide.
cudaError_t gated(Type type, Curve curve, Int rows, Int n, const void* gate_up, void* y,
                  Stream stream);
cudaError_t gated_backward(Type type, Curve curve, Int rows, Int n, const void* gate_up,
                           const void* dy, void* dgate_up, Stream stream);

// [batch, length, heads, d] with dense heads; strides in elements.
struct Heads {
  void* data = nullptr;
  Int heads = 0;
  Int batch_stride = 0, position_stride = 0, head_stride = 0;
};
// qkv [batch, length, q.heads + 2 k.heads, d], dense, to and from its parts. Queries and keys turn
// by the tables [length, d / 2] on the way there, and back on the way back; null: they do not.
cudaError_t split_heads(Type type, Int batch, Int length, Int d, const void* qkv,
                        const float* cosines, const float* sines, Heads q, Heads k, Heads v,
                        Stream stream);
cudaError_t join_heads(Type type, Int batch, Int length, Int d, Heads q, Heads k, Heads v,
                       const float* cosines, const float* sines, void* qkv, Stream stream);

// Of each row of logits: the largest, the sum of exponentials of the differences from it, and the
// logit of the row's target. Columns are classes `first` and on; of a target that is none of them
// the logit is `elsewhere`.
cudaError_t row_statistics(Type type, Int rows, Int classes, const void* logits, Int first,
                           float elsewhere, const std::int64_t* targets, float* largest, float* sum,
                           float* target, Stream stream);
// In place: (softmax - one-hot of the target) * *scale / rows, from the logs of the rows' sums of
// exponentials.
cudaError_t cross_entropy_backward(Type type, Int rows, Int classes, void* logits, Int first,
                                   const std::int64_t* targets, const float* log_sums,
                                   const float* scale, Stream stream);

// An AdamW update of FP32 arrays; `rounded` receives the values in BF16, unless it is null.
struct AdamStep {
  float beta1, beta2, eps;
  float keep;              // what weight decay leaves of a value
  float lr;                // over the first moment's correction
  float root_correction2;  // the second moment's
  float gradient_scale;
};
cudaError_t adamw(const AdamStep& step, Int count, float* values, const float* gradients,
                  float* moment1, float* moment2, void* rounded, Stream stream);

// *total += the sum of squares; `partial` has room for kSquarePartials.
inline constexpr Int kSquarePartials = 2048;
cudaError_t add_squares(Int count, const float* x, double* partial, double* total, Stream stream);

}  // namespace copus::cuda
