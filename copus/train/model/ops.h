// The operators of a Transformer that libtorch does not have as one function in every version. All
// are differentiable. Their results have the precision of the input; sums that need it are FP32.
#pragma once

#include <functional>
#include <vector>

#include "copus/spec/model_spec.h"
#include "copus/train/device/torch_api.h"

namespace copus {

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
// x + delta, and the norm of that sum.
struct SumAndNorm {
  Tensor sum, norm;
};
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, double eps);

// Rotary tables [length, head_dim / 2] of cosines and sines for positions 0 .. length-1, FP32.
struct RotaryTable {
  Tensor cosines, sines;
};
RotaryTable rotary_table(const ModelSpec& model, std::int64_t length, at::Device device);
// x: [batch, length, heads, head_dim]. Element i of a head's first half is rotated together with
// element i of its second half, as in Hugging Face's models.
Tensor rotate(const Tensor& x, const RotaryTable& table);

// Returns activation(gate) * up, [.., n]. `gate_up` is [.., 2n]: n gates, then n ups.
Tensor gated(const Tensor& gate_up, Activation activation);
Tensor activate(const Tensor& x, Activation activation);

// Returns x W^T + bias. The bias may be undefined. If the weight is a leaf whose .grad() is
// defined, its gradient is added directly to .grad(), without another tensor; hooks on the leaf's
// accumulator still run. So torch::autograd::backward() works, but torch::autograd::grad() does
// not.
Tensor linear_layer(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
// Returns rows of `table`. On CPUs its gradient is added to .grad() as that of a linear weight is.
Tensor embed_rows(const Tensor& table, const Tensor& tokens);

// Causal attention. q: [batch, length, heads, d]; k, v: [batch, length, kv_heads, d] with heads a
// multiple of kv_heads. Returns [batch, length, heads * d].
Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v);
// The same for qkv [batch, length, (heads + 2 kv_heads) * d], which holds queries, then keys, then
// values. Rotates queries and keys first if `table` is defined.
Tensor self_attention(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                      const RotaryTable& table);

// Returns the mean cross-entropy of logits [tokens, vocab], in FP32. backward() may overwrite the
// logits, so it can be called only once.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets);

// Returns f(inputs), but keeps none of f's intermediate results. The backward pass calls f again.
using TensorFunction = std::function<Tensor(const std::vector<Tensor>&)>;
Tensor recomputed(const TensorFunction& f, const std::vector<Tensor>& inputs);

}  // namespace copus
