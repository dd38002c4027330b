#include "copus/cost/memory.h"

#include <algorithm>

namespace copus {
ActivationBytes activation_bytes(const ModelSpec& model, const CostOptions& options,
                                 bool fused_attention, const LayerShape& s) noexcept {
  const double e = element_bytes(options);
  const double tp = real(s.tp), h = real(model.hidden);
  const double t = real(s.micro_batch) * real(s.seq_len) / real(s.cp);
  const double replicated =
      t / (s.sp ? tp : 1.0);  // rows of tensors that sequence parallelism splits
  const double mask = model.dropout ? 1 : 0;
  // An input of a linear layer that nothing else needs.
  const double input =
      is_quantised(options.precision) ? std::min(e, options.quantised_input_bytes) : e;

  // Attention: the norm's input and output, q, k, v, the core's result, and the residual's dropout
  // mask.
  const double kv_heads = std::max(1.0, real(model.kv_heads) / tp);
  const double heads = real(model.heads) / tp;
  double q = heads * real(model.head_dim), kv = 2 * kv_heads * real(model.head_dim), v_out = q;
  double latent = 0;
  if (model.mla.enabled) {
    const MlaSpec& a = model.mla;
    q = heads * real(a.qk_nope_head_dim + a.qk_rope_head_dim);
    kv = heads * real(a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim);
    v_out = heads * real(a.v_head_dim);
    latent = real(a.q_lora_rank + a.kv_lora_rank + a.qk_rope_head_dim);
  }
  double attention = replicated * h * (e + input + mask) + t * (q + kv + v_out + latent) * e;
  // Unfused attention keeps the softmax, and with dropout its mask and result. Recompute drops them
  // after the forward pass, but during a layer's backward pass all of that layer's are there.
  double scores = 0;
  if (fused_attention) {
    attention += t * heads * 4;  // log-sum-exp
  } else {
    scores = heads * t * real(s.seq_len) * (e + (model.drops_scores() ? 1 + e : 0));
    if (s.recompute == Recompute::kNone) attention += scores;
  }

  // MLP: the norm's input and output, and the tensors inside and behind the activation function.
  const double factor = model.gated_mlp ? 3 : 2;
  const double dense_mlp =
      replicated * h * (e + input + mask) + t * real(model.ffn) / tp * ((factor - 1) * e + input);
  const double routed = expert_rows(model, options, s).computed;
  const double moe_mlp =
      replicated * h * (2 * e + mask) + replicated * real(model.moe.experts) * 4 +
      routed * (2 * h * e + real(model.moe.expert_ffn) / real(s.etp) * factor * e) +
      t * real(model.moe.shared_experts * model.moe.expert_ffn) / tp * factor * e;

  ActivationBytes bytes;
  const double kept = options.activation_scale;
  const Bytes dense(kept * (attention + dense_mlp)),
      moe(model.is_moe() ? kept * (attention + moe_mlp) : 0.0);
  if (s.recompute == Recompute::kFull) {
    bytes.dense = bytes.moe = Bytes(replicated * h * e);
    bytes.working = max(dense, moe) + Bytes(scores);
  } else {
    bytes.dense = dense;
    bytes.moe = moe;
    const double widest =
        std::max(real(model.ffn), real(model.moe.experts_per_token * model.moe.expert_ffn));
    bytes.working = Bytes(t * std::max(widest * (model.gated_mlp ? 2 : 1) / tp, h) * e);
    if (s.recompute == Recompute::kSelective) bytes.working += Bytes(scores);
  }
  if (s.sp && s.tp > 1) bytes.gathered = Bytes(2 * t * h * e);
  bytes.embedding = Bytes(replicated * h * mask);
  const double logit =
      options.logits_bytes > 0 ? options.logits_bytes : default_logit_bytes(options);
  bytes.head = Bytes(t * real(model.vocab) / tp * logit + 2 * replicated * h * e);
  return bytes;
}

MemoryBreakdown state_memory(const CostOptions& options, const ParallelPlan& plan,
                             RankParams params, double layer_params) noexcept {
  const double weight_bytes = element_bytes(options);
  const double replicas = real(plan.dp * plan.cp);
  const double expert_replicas = real(plan.expert_dp());
  auto sharded = [&](bool on) {
    return on ? params.dense / replicas + params.expert / expert_replicas : params.total();
  };
  MemoryBreakdown memory;
  memory.weights = Bytes(weight_bytes * sharded(plan.zero >= 3));
  memory.gradients = Bytes(gradient_bytes(options) * sharded(plan.zero >= 2));
  memory.optimizer = Bytes(optimizer_bytes(options) * sharded(plan.zero >= 1));
  if (replicas > 1 || (params.expert > 0 && expert_replicas > 1)) {
    memory.buffers = Bytes(options.extra_state_bytes * sharded(plan.zero >= 2));
  }
  if (plan.zero >= 2) memory.buffers += Bytes(gradient_bytes(options) * layer_params);
  if (plan.zero >= 3) memory.buffers += Bytes(2 * weight_bytes * layer_params);
  return memory;
}

}  // namespace copus
