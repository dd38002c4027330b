// The operators of a Transformer that libtorch does not have as one function in every version. All
// differentiable; all keep the input's precision outside and FP32 inside where sums need it.
#pragma once

#include <functional>
#include <vector>

#include "copus/spec/model_spec.h"
#include "copus/train/device/torch_api.h"

namespace copus {

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
// x + delta, and its norm.
struct SumAndNorm {
  Tensor sum, norm;
};
SumAndNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, double eps);

// Rotary tables [length, head_dim / 2] of cosines and sines for positions 0 .. length-1, FP32.
struct RotaryTable {
  Tensor cosines, sines;
};
RotaryTable rotary_table(const ModelSpec& model, std::int64_t length, at::Device device);
// x: [batch, length, heads, head_dim]. The first half of a head turns against the second, as in
// Hugging Face's models.
Tensor rotate(const Tensor& x, const RotaryTable& table);

// [.., 2n], gate then up -> [.., n]: activation(gate) * up.
Tensor gated(const Tensor& gate_up, Activation activation);
Tensor activate(const Tensor& x, Activation activation);

// x W^T + bias; the bias may be undefined. A leaf weight's gradient is added straight to .grad()
// where that is defined, with no tensor in between; hooks on the leaf's accumulator run all the
// same. So backward(), but not grad(), goes through it.
Tensor linear_layer(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
// Rows of `table`. On CPU its gradient goes as a linear weight's does.
Tensor embed_rows(const Tensor& table, const Tensor& tokens);

// Causal attention. q: [batch, length, heads, d]; k, v: [batch, length, kv_heads, d] with heads a
// multiple of kv_heads. Returns [batch, length, heads * d].
Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v);
// The same of qkv [batch, length, (heads + 2 kv_heads) * d], queries first, with queries and keys
// rotated where `table` is defined.
Tensor self_attention(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                      const RotaryTable& table);

// Mean cross-entropy of [tokens, vocab] logits, in FP32.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets);

// f(inputs) without keeping what f computes inside: it is computed again in the backward pass.
using TensorFunction = std::function<Tensor(const std::vector<Tensor>&)>;
Tensor recomputed(const TensorFunction& f, const std::vector<Tensor>& inputs);

}  // namespace copus
