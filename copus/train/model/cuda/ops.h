// Operators on an NVIDIA GPU that use Copus's own kernels (kernels.h), with one pass over memory
// forward and one backward. linear() uses cuBLAS, which adds the weight's gradient to an FP32
// buffer. A build without nvcc has a stub, and ATen computes all operators.
#pragma once

#include <string>
#include <utility>

#include "copus/train/model/ops.h"
#include "copus/train/options/layout_options.h"

namespace copus::cuda {

// Returns whether the kernels can be used for x: this build has them, the GPU can run them, and x
// is FP32 or BF16.
bool takes(const Tensor& x);
// Returns why the kernels are not used on this device; "" if they are.
std::string why_not(const RankDevice& device);
// For benches and tests: with false, takes() returns false from now on; true undoes that.
void use_kernels(bool use);

// The operators below REQUIRE takes() of their first argument, and the two norms takes_norm().

// Returns whether takes(x), and the rows of x are short enough for rms_norm() and add_rms_norm().
bool takes_norm(const Tensor& x);
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, double eps);

// `activation` is SiLU or GELU's tanh form.
Tensor gated(const Tensor& gate_up, Activation activation);

// Queries, keys and values, each [batch, length, heads, d]. split_heads() copies them from qkv, and
// rotates queries and keys if `table` is defined.
struct QueryKeyValue {
  Tensor q, k, v;
};
QueryKeyValue split_heads(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                          const RotaryTable& table);

// Implements linear_layer(). If the values are BF16, the weight is a leaf with an FP32 .grad(), and
// libtorch has such a product, the product adds the weight's gradient to .grad() directly.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

Tensor cross_entropy(const Tensor& logits, const Tensor& targets);
// For each row of logits, in FP32: the largest logit, the sum of exp(logit - largest), and the
// target's logit. Column i is class `first` + i. If the target is not among these classes, its
// logit is 0.
struct RowStatistics {
  Tensor largest, sum, target;
};
RowStatistics row_statistics(const Tensor& logits, const Tensor& targets, std::int64_t first);
// Replaces the logits by the gradient of `scale` (one FP32 number) times the mean loss.
void to_loss_gradient(const Tensor& logits, const Tensor& targets, std::int64_t first,
                      const Tensor& log_sums, const Tensor& scale);

// Makes one AdamW update of flat FP32 tensors. Also writes the values to `rounded` (BF16), unless
// that is undefined.
struct AdamRates {
  double beta1 = 0, beta2 = 0, eps = 0;
  double keep = 1, lr = 0, root_correction2 = 1, gradient_scale = 1;
};
void adamw(const AdamRates& rates, const Tensor& values, const Tensor& gradients,
           const Tensor& moment1, const Tensor& moment2, const Tensor& rounded);
// Adds the sum of x's squares to `total`, a double without dimensions.
void add_squares(const Tensor& x, const Tensor& total);

}  // namespace copus::cuda
