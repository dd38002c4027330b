// Operators on an NVIDIA GPU by kernels of ours (kernels.h), each one pass forward and one
// backward; weights' gradients of products by cuBLAS, added to FP32 buffers. A build without nvcc
// has a stub, and ATen computes everything.
#pragma once

#include <string>
#include <utility>

#include "copus/train/model/ops.h"
#include "copus/train/options/layout_options.h"

namespace copus::cuda {

// Whether the kernels compute x: this build has them, the GPU runs them, x is FP32 or BF16.
bool takes(const Tensor& x);
// Why the GPU's kernels are not used; empty: they are.
std::string why_not(const RankDevice& device);
// For benches and tests: from now on `takes` says no, or what is true.
void use_kernels(bool use);

// All of these: REQUIRES takes(x).

// Whether a row of n elements is short enough for rms_norm() and add_rms_norm().
bool takes_norm(const Tensor& x);
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, double eps);

// `activation` is SiLU or GELU's tanh form.
Tensor gated(const Tensor& gate_up, Activation activation);

// Queries, keys and values [batch, length, heads, d] of qkv, queries and keys rotated where `table`
// is defined.
struct QueryKeyValue {
  Tensor q, k, v;
};
QueryKeyValue split_heads(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                          const RotaryTable& table);

// linear_layer() with BF16 values: the gradient of a leaf weight that has an FP32 .grad() is added
// to it by the product itself.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

Tensor cross_entropy(const Tensor& logits, const Tensor& targets);
// Of rows of logits whose columns are classes `first` and on, FP32: the largest, the sum of
// exponentials of the differences from it, and the target's logit (0: it is in another part).
struct RowStatistics {
  Tensor largest, sum, target;
};
RowStatistics row_statistics(const Tensor& logits, const Tensor& targets, std::int64_t first);
// Makes the gradient of `scale` (one FP32 number) times the mean loss, in the logits' place.
void to_loss_gradient(const Tensor& logits, const Tensor& targets, std::int64_t first,
                      const Tensor& log_sums, const Tensor& scale);

// One AdamW update of flat FP32 tensors. `rounded`: BF16 values, written too; undefined: none.
struct AdamRates {
  double beta1 = 0, beta2 = 0, eps = 0;
  double keep = 1, lr = 0, root_correction2 = 1, gradient_scale = 1;
};
void adamw(const AdamRates& rates, const Tensor& values, const Tensor& gradients,
           const Tensor& moment1, const Tensor& moment2, const Tensor& rounded);
// total (double, no dimensions) += the sum of x's squares.
void add_squares(const Tensor& x, const Tensor& total);

}  // namespace copus::cuda
