// ModelSpec: the shape of a decoder-only Transformer, with its exact parameter counts and its
// floating-point operations.
//
// Plain data; a spec that came from a parser has passed validate(). As thread-safe as any value.
#pragma once

#include <cstdint>
#include <string>

#include "copus/base/result.h"

namespace copus {

enum class Norm { kLayerNorm, kRmsNorm };
enum class Positions { kRope, kLearned };
enum class Activation { kSilu, kGelu, kGeluTanh };  // kGeluTanh: the approximation that GPT-2 uses

// How rotary frequencies are stretched to longer contexts than those of the first training. The
// costs of a plan are the same for every kind.
struct RopeScaling {
  // kOther: a kind that Copus can plan but not train (yarn, dynamic, longrope, ...); `other` names
  // it.
  enum Kind { kNone, kLinear, kLlama3, kOther };
  Kind kind = kNone;
  double factor = 1;
  // The next three fields are for kLlama3 only.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_positions = 0;
  std::string other;

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// Multi-head latent attention (DeepSeek-V2/V3): queries and keys/values go through low-rank
// projections.
struct MlaSpec {
  bool enabled = false;
  std::int64_t q_lora_rank = 0;  // 0: queries are projected directly
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;

  friend bool operator==(const MlaSpec&, const MlaSpec&) = default;
};

// Mixture of experts in place of the MLP. experts == 0: dense.
struct MoeSpec {
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_ffn = 0;          // intermediate size of one routed expert
  std::int64_t shared_experts = 0;      // always-on experts, each of expert_ffn
  std::int64_t first_dense_layers = 0;  // leading layers with the plain MLP
  bool router_correction_bias =
      false;  // DeepSeek-V3's e_score_correction_bias: one number per expert
  // DeepSeek-V3's router chooses `router_group_topk` of `router_groups` groups of experts, and
  // multiplies the outputs of the experts by `router_scale`. Costs do not depend on these fields.
  std::int64_t router_groups = 1, router_group_topk = 1;
  double router_scale = 1;
  // After the leading dense layers, those whose number (from 0) leaves `layer_offset` when divided
  // by `layer_step` have experts; the others have the plain MLP. Llama 4 Maverick: 2 and 1.
  std::int64_t layer_step = 1, layer_offset = 0;

  friend bool operator==(const MoeSpec&, const MoeSpec&) = default;
};

struct ModelSpec {
  std::string name = "unnamed";
  std::string family = "llama";  // Hugging Face's model_type

  std::int64_t layers = 1;
  std::int64_t hidden = 1;
  std::int64_t ffn = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_dim = 1;
  std::int64_t vocab = 1;
  std::int64_t max_positions = 1;

  bool gated_mlp = true;
  bool tied_embeddings = false;
  Norm norm = Norm::kRmsNorm;
  Positions positions = Positions::kRope;
  double rope_theta =
      10000;  // base of the rotary frequencies; it affects no cost, but a launch needs it
  RopeScaling rope_scaling;
  std::int64_t sliding_window = 0;  // tokens that attention looks back over; 0: all
  std::int64_t full_layers = 0;     // leading layers that have no window
  double norm_eps = 1e-5;
  double init_std = 0.02;  // standard deviation of the normal distribution of initial weights
  Activation activation = Activation::kSilu;
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm over head_dim on queries and keys (Qwen3)
  bool dropout = false;  // dropout everywhere, with stored masks, as in GPT-2's training
  // Dropout rate of the attention weights only. Fused kernels need no stored mask for it.
  double attention_dropout = 0;
  MlaSpec mla;
  MoeSpec moe;

  bool is_moe() const { return moe.experts > 0; }
  bool drops_scores() const { return dropout || attention_dropout > 0; }
  bool layer_is_moe(std::int64_t layer) const {
    return is_moe() && layer >= moe.first_dense_layers &&
           layer % moe.layer_step == moe.layer_offset;
  }
  // Returns how many of the layers before `layer` have experts. O(1).
  std::int64_t moe_layers_before(std::int64_t layer) const {
    if (!is_moe() || layer <= moe.first_dense_layers) return 0;
    const auto among_first = [&](std::int64_t n) {
      return (n - moe.layer_offset + moe.layer_step - 1) / moe.layer_step;
    };
    return among_first(layer) - among_first(moe.first_dense_layers);
  }
  std::int64_t moe_layers() const { return moe_layers_before(layers); }

  // Parameter counts by part. They are exact: the sums equal the published checkpoints.
  std::int64_t norm_params() const;       // one normalisation over hidden
  std::int64_t attention_params() const;  // one layer's attention, without the norm before it
  std::int64_t dense_mlp_params() const;
  std::int64_t expert_params() const;         // one routed expert
  std::int64_t shared_expert_params() const;  // all shared experts of one layer
  std::int64_t router_params() const;
  std::int64_t layer_params(std::int64_t layer) const;
  std::int64_t embedding_params() const;  // of tokens and learned positions
  std::int64_t head_params() const;       // 0 when tied
  std::int64_t total_params() const;
  // Parameters that one token uses (MoE: only its topk routed experts).
  std::int64_t active_params() const;

  // Returns the forward floating-point operations of one token at causal sequence length `seq_len`
  // (2 per multiply-add), without recompute. The numerator of MFU is 3x this. Attention counts
  // mean_context() positions.
  double forward_flops_per_token(std::int64_t seq_len) const;
  // Returns how many positions a token attends to, on average over a causal sequence. A window
  // makes them fewer.
  double mean_context(std::int64_t seq_len) const;

  Result<void> validate() const;

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

}  // namespace copus
