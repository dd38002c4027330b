#include "copus/cost/compute.h"

#include <algorithm>
#include <cmath>

namespace copus {
namespace {

// Head dimension and sequence length at which the fused attention kernel reaches half its rate. The
// head dimension is assumed: it gives 84% at 128 and 73% at 64. The length is fitted to causal
// attention on one H200 at head dimension 128 and 1,024 to 8,192 tokens.
constexpr double kAttentionHalfDim = 24;
constexpr double kAttentionHalfLength = 200;
// Head dimension at which the batched products of unfused attention reach half the rate of a large
// product, in 16 bits. Like matmul_half_k, it grows with the rate of the precision.
constexpr double kUnfusedHalfDim = 96;

// Share of full utilisation at width x: 1/2 at `half`, and nearly 1 far above it, as measured
// products show.
double fall_off(double x, double half) { return x * x / (x * x + half * half); }

// Tokens of one micro-batch on this rank, and how many of them its norms and residuals process.
double tokens(const LayerShape& s) { return real(s.micro_batch) * real(s.seq_len) / real(s.cp); }
double residual_tokens(const LayerShape& s) { return tokens(s) / (s.sp ? real(s.tp) : 1.0); }

// Key-value heads on this rank. They are replicated if the model has fewer than tp.
double local_kv_heads(const ModelSpec& m, const LayerShape& s) {
  return std::max(1.0, real(m.kv_heads) / real(s.tp));
}

}  // namespace

ExpertRows expert_rows(const ModelSpec& model, const CostOptions& options,
                       const LayerShape& s) noexcept {
  ExpertRows rows;
  rows.sent = residual_tokens(s) * real(model.moe.experts_per_token) * expert_load(options);
  // The ranks that an expert is cut over compute the same rows. Without sequence parallelism they
  // are the tp ranks, which hold the same tokens anyway.
  rows.computed = rows.sent * (s.sp || s.tp == 1 ? real(s.etp) : 1.0);
  return rows;
}

double parts_reached(const MoeSpec& moe, std::int64_t parts) noexcept {
  // The chance that none of a token's experts, which differ, lies in a given part.
  const double experts = real(moe.experts), part = experts / real(parts);
  double missed = 1;
  for (std::int64_t i = 0; i < moe.experts_per_token; ++i)
    missed *= std::max(0.0, experts - part - real(i)) / (experts - real(i));
  const double reached = real(parts) * (1 - missed);
  return parts <= moe.router_groups ? std::min(reached, real(moe.router_group_topk)) : reached;
}

ExpertSends expert_sends(const ModelSpec& model, const CostOptions& options, const LayerShape& s,
                         GroupPlace group) noexcept {
  ExpertSends sends;
  if (group.size <= 1) return sends;
  const double copies = expert_rows(model, options, s).sent;
  const double n = real(group.size), local = real(group.per_node);
  if (!sends_tokens_once(options)) {
    sends.inside = copies * (local - 1) / n;
    sends.outside = copies * (n - local) / n;
    return sends;
  }
  // A token crosses the network once for each other node that has experts of it. The GPU that
  // receives it there hands it on over the links, so the links carry what every rank receives.
  const double tokens = copies / real(model.moe.experts_per_token);
  const double nodes = real(group.nodes);
  sends.inside = tokens * parts_reached(model.moe, group.size) * (local - 1) / local;
  sends.outside = tokens * parts_reached(model.moe, group.nodes) * (nodes - 1) / nodes;
  return sends;
}

ComputeModel::ComputeModel(const ModelSpec& model, const ClusterSpec& cluster,
                           const CostOptions& options)
    : model_(model),
      options_(options),
      efficiency_(cluster.gpu.efficiency),
      collectives_(cluster),
      gpus_per_node_(cluster.gpus_per_node),
      has_fp8_units_(cluster.gpu.peak_fp8.v > 0),
      peak_(cluster.gpu.peak(options.precision)),
      wide_peak_(
          cluster.gpu.peak(is_quantised(options.precision) ? Precision::kBf16 : options.precision)),
      half_peak_(max(cluster.gpu.peak_bf16, cluster.gpu.peak_fp16)),
      memory_(cluster.gpu.memory_bandwidth * cluster.gpu.efficiency.memory),
      element_(copus::element_bytes(options)),
      operand_(is_quantised(options.precision) ? copus::quantised_bytes(options.precision)
                                               : element_),
      quantise_bytes_(copus::quantise_bytes(options.precision)),
      fused_(runs_fused_attention(options, cluster.gpu)) {}

Seconds ComputeModel::matmul(double m, double n, double k, double count, bool wide) const noexcept {
  return product(m, n, k, count, element_, wide);
}

Seconds ComputeModel::matmul_into_gradients(double m, double n, double k,
                                            double count) const noexcept {
  return product(m, n, k, count, 2 * gradient_bytes(options_), false);
}

Seconds ComputeModel::product(double m, double n, double k, double count, double out_bytes,
                              bool wide) const noexcept {
  if (m <= 0 || n <= 0 || k <= 0 || count <= 0) return Seconds(0);
  const FlopsPerSec peak = wide ? wide_peak_ : peak_;
  // The start and the end of a tile take the same time at every precision. While they last, faster
  // units would have gone through more of the depth.
  const double half_k = efficiency_.matmul_half_k * (half_peak_.v > 0 ? peak / half_peak_ : 1.0);
  const double operand = wide ? element_ : operand_;
  // A kernel computes whole tiles, so a product narrower than the half width is no faster.
  const double padded_m = std::max(m, efficiency_.matmul_half_m);
  const double padded_n = std::max(n, efficiency_.matmul_half_n);
  const double padded_k = std::max(k, half_k);
  const double utilisation = efficiency_.matmul * fall_off(padded_m, efficiency_.matmul_half_m) *
                             fall_off(padded_n, efficiency_.matmul_half_n) *
                             fall_off(padded_k, half_k);
  const Seconds arithmetic =
      Flops(2 * padded_m * padded_n * padded_k * count) / (peak * utilisation);
  const Seconds traffic = Bytes((operand * (n * k + m * k) + out_bytes * m * n) * count) / memory_;
  return max(arithmetic, traffic) + efficiency_.launch;
}

Seconds ComputeModel::quantise(double elements) const noexcept {
  if (quantise_bytes_ <= 0) return Seconds(0);
  return Bytes(elements * quantise_bytes_) / memory_ + efficiency_.launch;
}

Seconds ComputeModel::stream(Bytes bytes, double kernels) const noexcept {
  return bytes * options_.elementwise / memory_ + efficiency_.launch * kernels;
}

// Time of scores, softmax and weighted sum. A fused kernel skips the positions that a token does
// not attend to.
void ComputeModel::attention_core(const LayerShape& s, Seconds& forward,
                                  Seconds& backward) const noexcept {
  const double heads = real(model_.heads) / real(s.tp);
  const double qk_dim = model_.mla.enabled
                            ? real(model_.mla.qk_nope_head_dim + model_.mla.qk_rope_head_dim)
                            : real(model_.head_dim);
  const double v_dim = model_.mla.enabled ? real(model_.mla.v_head_dim) : real(model_.head_dim);
  const double queries = tokens(s);  // all sequences of the micro-batch
  const double pairs = queries * real(s.seq_len);
  if (fused_) {
    // Forward: two products over the positions that a token attends to. Backward: five products
    // (the scores again, and four gradients), Dao 2023.
    const Flops flops(2 * heads * queries * model_.mean_context(s.seq_len) * (qk_dim + v_dim));
    const double depth = qk_dim / (qk_dim + kAttentionHalfDim);
    const double length =
        real(s.seq_len) / real(s.cp) / (real(s.seq_len) / real(s.cp) + kAttentionHalfLength);
    const FlopsPerSec rate = wide_peak_ * (depth * length * options_.attention_rate);
    const Bytes io(element_ * queries *
                   (heads * (qk_dim + v_dim) + 2 * local_kv_heads(model_, s) * qk_dim));
    forward =
        max(flops / (rate * efficiency_.attention_forward), io / memory_) + efficiency_.launch;
    backward = max(flops * 2.5 / (rate * efficiency_.attention_backward), io * 2.5 / memory_) +
               efficiency_.launch * 2;
    return;
  }
  // Unfused attention computes all scores, not the causal half, by batched matmul, and makes passes
  // over the stored scores. The first product writes them, the masked softmax reads and writes
  // them, dropout reads and writes them and writes its mask, the second product reads them. In the
  // forward pass `product` counts the passes of the two products.
  const double sequences = real(s.micro_batch);
  const double rows = real(s.seq_len) / real(s.cp);
  const Bytes scores(heads * pairs);  // one byte per score
  const bool drops = model_.drops_scores();
  const double passes = 4 * element_ + (drops ? 2 * element_ + 1 : 0);
  auto product = [&](double dim) {
    const double half = kUnfusedHalfDim * (half_peak_.v > 0 ? wide_peak_ / half_peak_ : 1.0);
    const FlopsPerSec rate = wide_peak_ * (efficiency_.matmul * dim / (dim + half));
    const Bytes io(element_ * heads * sequences *
                   (rows * real(s.seq_len) + (rows + real(s.seq_len)) * dim));
    return max(Flops(2 * heads * pairs * dim) / rate, io / memory_) + efficiency_.launch;
  };
  const Seconds products = product(qk_dim) + product(v_dim);
  forward = products + stream(scores * (passes - 2 * element_), drops ? 3 : 2);
  backward = products * 2.0 + stream(scores * passes, drops ? 3 : 2);
}

void ComputeModel::attention(const LayerShape& s, PieceCost& cost) const noexcept {
  const double t = tokens(s), h = real(model_.hidden), tp = real(s.tp);
  auto linear = [&](double in, double out) {
    cost.forward.compute += matmul(t, out, in) + quantise(t * in);
    cost.backward_input.compute += matmul(t, in, out) + quantise(t * out);
    cost.backward_weight.compute += matmul(in, out, t);
  };
  if (model_.mla.enabled) {
    const MlaSpec& a = model_.mla;
    const double q_dim = real(model_.heads) * real(a.qk_nope_head_dim + a.qk_rope_head_dim) / tp;
    if (a.q_lora_rank > 0) {
      linear(h, real(a.q_lora_rank));
      linear(real(a.q_lora_rank), q_dim);
    } else {
      linear(h, q_dim);
    }
    linear(h, real(a.kv_lora_rank + a.qk_rope_head_dim));
    linear(real(a.kv_lora_rank), real(model_.heads) * real(a.qk_nope_head_dim + a.v_head_dim) / tp);
    linear(real(model_.heads) * real(a.v_head_dim) / tp, h);
  } else {
    const double q = real(model_.heads) * real(model_.head_dim) / tp;
    const double kv = local_kv_heads(model_, s) * real(model_.head_dim);
    linear(h, q + 2 * kv);
    linear(q, h);
    if (model_.positions == Positions::kRope) {
      const Seconds rotate = stream(Bytes(2 * element_ * t * (q + kv)), 2);
      cost.forward.compute += rotate;
      cost.backward_input.compute += rotate;
    }
  }
}

void ComputeModel::dense_mlp(const LayerShape& s, double ffn, PieceCost& cost) const noexcept {
  const double t = tokens(s), h = real(model_.hidden), f = ffn / real(s.tp);
  const double in = model_.gated_mlp ? 2 * f : f;
  cost.forward.compute += matmul(t, in, h) + matmul(t, h, f) +
                          stream(Bytes(element_ * t * (in + f))) + quantise(t * h) +
                          quantise(t * f);
  cost.backward_input.compute += matmul(t, h, in) + matmul(t, f, h) +
                                 stream(Bytes(element_ * t * (2 * in + f))) + quantise(t * in) +
                                 quantise(t * h);
  cost.backward_weight.compute += matmul(h, in, t) + matmul(f, h, t);
}

void ComputeModel::moe_mlp(const LayerShape& s, PieceCost& cost) const noexcept {
  const MoeSpec& moe = model_.moe;
  const double h = real(model_.hidden), t = residual_tokens(s);
  const double computed = expert_rows(model_, options_, s).computed;
  const double experts = real(moe.experts) / real(s.ep);
  const double rows = computed / experts;
  const double f = real(moe.expert_ffn) / real(s.etp);
  const double in = model_.gated_mlp ? 2 * f : f;
  // The router's products stay wide.
  cost.forward.compute += matmul(t, real(moe.experts), h, 1, true) + matmul(rows, in, h, experts) +
                          matmul(rows, h, f, experts) +
                          stream(Bytes(element_ * computed * (in + f)));
  cost.backward_input.compute += matmul(t, h, real(moe.experts), 1, true) +
                                 matmul(rows, h, in, experts) + matmul(rows, f, h, experts) +
                                 stream(Bytes(element_ * computed * (2 * in + f)));
  // The gradients of many experts are large beside the few rows that each gets.
  cost.backward_weight.compute += matmul(h, real(moe.experts), t, 1, true) +
                                  matmul_into_gradients(h, in, rows, experts) +
                                  matmul_into_gradients(f, h, rows, experts);
  cost.forward.compute += quantise(computed * h) + quantise(computed * f);
  cost.backward_input.compute += quantise(computed * in) + quantise(computed * h);
  // Tokens are permuted to the order of their experts and back: a read and a write each way.
  const Seconds permute = stream(Bytes(4 * element_ * computed * h), 6);
  cost.forward.compute += permute;
  cost.backward_input.compute += permute;
  if (options_.expert_capacity == 0) {
    cost.forward.compute += options_.host_routing;
    cost.backward_input.compute += options_.host_routing;
  }
  if (moe.shared_experts > 0) {
    dense_mlp(s, real(moe.shared_experts * moe.expert_ffn), cost);
    tensor_parallel(s, 1, TpProducts::kDense, cost);
  }
  expert_exchange(s, cost);
}

// Dispatch and combine. In the backward pass each sends what the other sends forward, so the cost
// is the same. If experts are cut, the etp ranks of an expert gather the rows that each of them
// received, and scatter the sums of their results. Without sequence parallelism all tp ranks hold
// the same tokens; then each adds its part of the experts' results like a dense layer's.
void ComputeModel::expert_exchange(const LayerShape& s, PieceCost& cost) const noexcept {
  const double h = real(model_.hidden);
  const ExpertRows rows = expert_rows(model_, options_, s);
  const GroupPlace group = place_group(s.ep, s.etp, gpus_per_node_);
  const ExpertSends sends = expert_sends(model_, options_, s, group);
  const Bytes row(element_ * h);
  const Seconds exchange = 2 * (1 - options_.ep_overlap) *
                           collectives_.exchange(group, row * sends.inside, row * sends.outside);
  cost.forward.ep += exchange;
  cost.backward_input.ep += exchange;
  if (s.tp > 1 && !s.sp) {
    tensor_parallel(s, 1, TpProducts::kOther, cost);
  } else if (s.etp > 1) {
    const GroupPlace cut = place_group(s.etp, 1, gpus_per_node_);
    const Bytes volume(element_ * rows.computed * h);
    const Seconds both = collectives_.time(Collective::kAllGather, cut, volume) +
                         collectives_.time(Collective::kReduceScatter, cut, volume) +
                         options_.tp_skew * 2.0;
    cost.forward.tp += both * (1 - options_.tp_overlap);
    cost.backward_input.tp += both * (1 - options_.tp_overlap);
  }
}

void ComputeModel::norm_and_residual(const LayerShape& s, PieceCost& cost) const noexcept {
  const double volume = element_ * residual_tokens(s) * real(model_.hidden);
  // The norm reads and writes once. The residual add (with bias and dropout, if the model has them)
  // reads twice, writes once, and writes the dropout mask.
  const double residual = 3 + (model_.dropout ? 0.5 : 0);
  cost.forward.compute += stream(Bytes(volume * (2 + residual)), 2) * 2.0;
  cost.backward_input.compute += stream(Bytes(volume * (4 + residual)), 3) * 2.0;
}

// Adds the exposed communication of `regions` pairs of a column-parallel and a row-parallel
// product. A pair has one all-reduce forward and one backward; sequence parallelism replaces each
// by a reduce-scatter and an all-gather. It also gathers the input again for the weight gradient,
// but hides this gather under the input gradient, so it costs nothing here.
void ComputeModel::tensor_parallel(const LayerShape& s, double regions, TpProducts products,
                                   PieceCost& cost) const noexcept {
  if (s.tp <= 1) return;
  const GroupPlace group = place_group(s.tp, 1, gpus_per_node_);
  const Bytes volume(element_ * tokens(s) * real(model_.hidden));
  const double collectives = s.sp ? 2 : 1;
  const Seconds transfer = s.sp ? collectives_.time(Collective::kReduceScatter, group, volume) +
                                      collectives_.time(Collective::kAllGather, group, volume)
                                : collectives_.time(Collective::kAllReduce, group, volume);
  Seconds one = (transfer + options_.tp_skew * collectives) * (1 - options_.tp_overlap);
  if (products == TpProducts::kDense && s.sp && s.tp <= gpus_per_node_ && has_fp8_units_) {
    // Transformer Engine cuts such a collective into a piece per rank and computes beside the
    // pieces. Each piece waits for its peer, so short collectives gain nothing.
    one = min(one, transfer * (1 - options_.tp_overlap_te) +
                       options_.tp_skew * (collectives * real(s.tp)));
  }
  const Seconds exposed = one * regions;
  cost.forward.tp += exposed;
  cost.backward_input.tp += exposed;
}

void ComputeModel::finish_layer(const LayerShape& s, Seconds core_forward, double experts,
                                PieceCost& cost) const noexcept {
  if (s.recompute == Recompute::kSelective) cost.recompute.compute = core_forward;
  if (s.cp > 1) {
    // Ring attention passes keys and values around the ring, and backward their gradients too (Liu
    // 2023).
    const double width = model_.mla.enabled
                             ? real(model_.heads) / real(s.tp) *
                                   real(model_.mla.qk_nope_head_dim + model_.mla.qk_rope_head_dim +
                                        model_.mla.v_head_dim)
                             : 2 * local_kv_heads(model_, s) * real(model_.head_dim);
    const Bytes block(element_ * tokens(s) * width);
    const GroupPlace group = place_group(s.cp, s.tp, gpus_per_node_);
    const Seconds pass = collectives_.time(Collective::kAllGather, group, block * real(s.cp));
    auto exposed = [&](Seconds transfer, Seconds core) {
      return max(transfer - core * options_.cp_overlap,
                 transfer * (1 - options_.cp_overlap) / real(s.cp));
    };
    cost.forward.cp = exposed(pass, core_forward);
    cost.backward_input.cp = exposed(pass * 2.0, core_forward * 2.5);
    if (s.recompute != Recompute::kNone) cost.recompute.cp = cost.forward.cp;
  }
  // A layer takes at least as long as the host needs to issue its kernels: a faster GPU idles.
  const double collectives = s.tp > 1 ? (s.sp ? 4 : 2) : 0;
  const double backward_collectives = s.sp ? 1.5 * collectives : collectives;
  const Seconds host_experts = options_.host_expert * experts;
  const Seconds host_forward =
      options_.host_layer_forward + options_.host_collective * collectives + host_experts;
  const Seconds host_backward =
      options_.host_layer_backward + options_.host_collective * backward_collectives + host_experts;
  const Seconds ring = options_.pending_ring_step * real(s.tp - 1);
  const auto short_of = [](Seconds host, Seconds work) { return max(host - work, Seconds(0)); };

  const Seconds forward = cost.forward.total();
  const Seconds backward = cost.backward_input.total() + cost.backward_weight.total();
  const Seconds idle_forward = short_of(host_forward, forward);
  const Seconds idle_backward = short_of(host_backward, backward);
  const double weight = cost.backward_weight.total() / backward;
  cost.forward.compute += idle_forward;
  cost.backward_input.compute += idle_backward * (1 - weight);
  cost.backward_weight.compute += idle_backward * weight;

  cost.pending_forward =
      short_of(host_forward + options_.pending_layer + ring * collectives, forward) - idle_forward;
  cost.pending_backward =
      short_of(host_backward + options_.pending_layer + ring * backward_collectives, backward) -
      idle_backward;
  if (s.recompute == Recompute::kFull) {
    cost.recompute = cost.forward;
    cost.pending_backward += cost.pending_forward;
  }
}

LayerCosts ComputeModel::layer_costs(const LayerShape& s) const noexcept {
  LayerCosts costs;
  Seconds core_forward, core_backward;
  attention_core(s, core_forward, core_backward);
  PieceCost common;
  attention(s, common);
  common.forward.compute += core_forward;
  common.backward_input.compute += core_backward;
  norm_and_residual(s, common);
  tensor_parallel(s, 1, TpProducts::kDense, common);

  const std::int64_t dense_layers = model_.layers - model_.moe_layers();
  if (dense_layers > 0) {
    costs.dense = common;
    dense_mlp(s, real(model_.ffn), costs.dense);
    tensor_parallel(s, 1, TpProducts::kDense, costs.dense);
    finish_layer(s, core_forward, 0, costs.dense);
  }
  if (model_.is_moe()) {
    costs.moe = common;
    moe_mlp(s, costs.moe);
    finish_layer(s, core_forward, real(model_.moe.experts) / real(s.ep), costs.moe);
  }

  const double t = tokens(s), h = real(model_.hidden), tp = real(s.tp);
  // Embedding: a gather, a scatter-add of its gradient, and an all-reduce of the partial sums of
  // the vocabulary shards.
  costs.embedding.forward.compute = stream(Bytes(2 * element_ * t * h), 2);
  costs.embedding.backward_weight.compute = stream(Bytes((element_ + 4) * t * h), 2);
  tensor_parallel(s, 0.5, TpProducts::kOther, costs.embedding);
  // Head: projection, and a cross-entropy that reads and writes FP32 logits. Each rank has the
  // logits of its own vocabulary shard only.
  const double v = real(model_.vocab) / tp;
  const Bytes logits(t * v);
  costs.head.forward.compute = matmul(t, v, h, 1, true) + stream(logits * 14.0, 4);
  costs.head.backward_input.compute = matmul(t, h, v, 1, true) + stream(logits * 8.0, 2);
  costs.head.backward_weight.compute = matmul(h, v, t, 1, true);
  tensor_parallel(s, 0.5, TpProducts::kOther, costs.head);
  return costs;
}

}  // namespace copus
