// For tests: small models with the properties that are difficult for layouts: shared key and value
// heads, a vocabulary that no number of ranks divides, tied embeddings, biases, norms of queries
// and keys.
#pragma once

#include <string>

#include "copus/spec/model_spec.h"

namespace copus::testing_models {

inline ModelSpec llama(bool tied = false) {
  ModelSpec m;
  m.name = "llama-test";
  m.layers = 8;
  m.hidden = 32;
  m.ffn = 80;
  m.heads = 8;
  m.kv_heads = 4;  // with tp=8, two ranks share each key and value head
  m.head_dim = 4;
  m.vocab = 251;  // a prime number, so with tp above 1 the last rank holds padding
  m.max_positions = 64;
  m.tied_embeddings = tied;
  m.norm_eps = 1e-6;
  return m;
}

inline ModelSpec gpt2() {
  ModelSpec m = llama(/*tied=*/true);
  m.name = "gpt2-test";
  m.family = "gpt2";
  m.kv_heads = m.heads;
  m.gated_mlp = false;
  m.norm = Norm::kLayerNorm;
  m.positions = Positions::kLearned;
  m.activation = Activation::kGeluTanh;
  m.qkv_bias = m.attention_out_bias = m.mlp_bias = true;
  m.norm_eps = 1e-5;
  return m;
}

inline ModelSpec qwen3() {
  ModelSpec m = llama();
  m.name = "qwen3-test";
  m.qk_norm = true;
  m.qkv_bias = true;
  // With a larger init_std: near zero, normalising queries and keys would amplify rounding errors.
  m.init_std = 0.1;
  return m;
}

inline ModelSpec model_named(const std::string& name) {
  if (name == "gpt2") return gpt2();
  if (name == "qwen3") return qwen3();
  return llama(/*tied=*/name == "tied");
}

}  // namespace copus::testing_models
