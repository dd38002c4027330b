// CostOptions: what the cost model assumes about the training engine, as named options. The
// defaults are those of Megatron-LM (FP32 gradients, reduced after the last backward pass unless
// the optimizer is sharded).
//
// On the command line: --assume attention=unfused,grad_overlap=none
#pragma once

#include <string>
#include <string_view>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/base/units.h"
#include "copus/spec/cluster_spec.h"
#include "copus/spec/stage_split.h"

namespace copus {

enum class AttentionKernel {
  kAuto,     // fused if the GPU has such a kernel; these kernels support dropout
  kFused,    // flash attention: scores never reach memory
  kUnfused,  // scores, softmax and dropout are separate kernels; scores are stored
};

// When data-parallel gradients are reduced.
enum class GradOverlap {
  kAuto,          // kLastBackward if the optimizer is sharded (zero >= 1), else kNone
  kNone,          // after the last backward pass
  kLastBackward,  // bucket by bucket under the last micro-batch's backward pass
  kReplicated,    // kLastBackward if the optimizer is not sharded (zero = 0), else kNone
};

// How tokens reach the ranks of their experts.
enum class ExpertDispatch {
  kAllToAll,  // one copy per expert of the token, to the expert's rank
  // One copy per node over the network, which that node's GPU hands on to each rank that needs it
  // (DeepEP). Not with padded capacities.
  kDeduplicated,
};

struct CostOptions {
  Precision precision = Precision::kBf16;
  AttentionKernel attention = AttentionKernel::kAuto;
  GradOverlap grad_overlap = GradOverlap::kAuto;
  StageCut stage_cut = StageCut::kLayers;
  ExpertDispatch expert_dispatch = ExpertDispatch::kAllToAll;

  // Per parameter. 0: 4, because Megatron-LM accumulates BF16 gradients in FP32, but 2 with FP16.
  double grad_bytes = 0;
  double optimizer_bytes = 12;  // per parameter: FP32 master weights and Adam's two moments

  // Rate of the fused attention kernel, as a multiple of the rate of the GPU's best known kernel.
  double attention_rate = 1;
  // Bytes that element-wise kernels move, as a multiple of what fused kernels would move.
  double elementwise = 1;
  // Share of a hidden transfer that still costs time, because it takes cores and memory bandwidth
  // from the computation.
  double overlap_contention = 0.2;
  // Share of the gradients that is ready only when the backward pass ends (the last bucket). Its
  // transfer is never hidden.
  double exposed_bucket = 0.05;
  // Share of tensor-parallel communication hidden under computation (async TP); 0: all exposed.
  double tp_overlap = 0;
  // The same for dense products with sequence parallelism and tp inside a node, on GPUs with FP8
  // units: Transformer Engine can exchange pieces of such products while it computes (user
  // buffers). Each piece costs a tp_skew. It does so where that is faster.
  double tp_overlap_te = 0;
  // Wait for the slowest peer and for the launch at each tensor-parallel collective.
  Seconds tp_skew = microseconds(40);
  // ZeRO-3: share of the layers' weights that is gathered while the rank computes; 0: every gather
  // is waited for.
  double weight_prefetch = 1;
  // ZeRO-3: collectives that gather the weights of a layer, and that scatter its gradients.
  // DeepSpeed had one for each tensor.
  double zero3_collectives = 1;
  // Share of the attention core's time that can hide the context-parallel ring.
  double cp_overlap = 0.8;
  // Share of the expert all-to-all hidden under computation.
  double ep_overlap = 0;
  // Share of all costs of pipeline messages (posting, latency, transfer, congestion, layers that
  // they slow down) that is hidden, in addition to what the schedule hides.
  double pp_overlap = 0;

  // Rows that the busiest rank's experts get, relative to the mean over all ranks. 1: the router
  // spreads the tokens evenly.
  double expert_imbalance = 1;
  // Capacity of an expert, relative to its mean number of rows: every expert computes this many,
  // tokens beyond them are dropped, and missing ones are padded. 0: no token is dropped (dropless).
  double expert_capacity = 0;

  // Least time of a layer's pass, however small the layer is: the host needs it to issue kernels.
  Seconds host_layer_forward = microseconds(400);
  Seconds host_layer_backward = microseconds(500);
  // Added to both least times for each tensor-parallel collective of the layer.
  Seconds host_collective = microseconds(0);
  // Added to both least times for each expert of the layer that the rank holds: some kernels are
  // launched expert by expert.
  Seconds host_expert = microseconds(0);
  // For each pass of a layer with experts, forward or backward, unless experts have a capacity: the
  // host learns from the GPU how many rows each expert gets before it can launch what follows, so
  // the GPU's queue runs empty.
  Seconds host_routing = microseconds(1000);
  // A rank's own time around the pipeline messages of one pass of a chunk (posting, synchronising),
  // in addition to their latency.
  Seconds hop_overhead = microseconds(120);
  // Added to both least times of a layer while a pipeline message over the network is pending: once
  // per layer, and once per step of its tensor-parallel rings. Progress threads then share cores
  // with the thread that issues kernels.
  Seconds pending_layer = microseconds(0);
  Seconds pending_ring_step = microseconds(0);
  // Extra time of a pipeline message over the network, per neighbour of the rank, at 64 nodes. It
  // grows with the nodes like the network's congestion (congestion_growth).
  Seconds hop_congestion = microseconds(0);
  // Wait for the slowest node, as a share of the step, per doubling of the nodes.
  double straggler = 0;
  // Once per step: data loading, loss averaging, clipping, logging.
  Seconds step_overhead = microseconds(5000);

  // Bytes per parameter of a gathered weight, if the precision is FP8 or FP4; 2: weights are
  // quantised after they are gathered.
  double quantised_gather_bytes = 2;
  // Bytes per element of a linear layer's input that is kept for the backward pass, if the
  // precision is FP8 or FP4; 2: it is quantised again there.
  double quantised_input_bytes = 2;

  // Bytes per parameter in addition to weights, gradients and optimizer state, if gradients are
  // reduced: buckets in the compute type, flat copies.
  double extra_state_bytes = 0;
  // Activations kept between forward and backward, as a multiple of what fused kernels keep.
  double activation_scale = 1;
  // Layers by which the host may be ahead of the GPU. The buffers that sequence parallelism gathers
  // for these layers stay allocated until the GPU has passed them.
  double run_ahead_layers = 0;
  // Bytes of one logit. 0: those of the compute type, and of an FP32 copy that becomes softmax and
  // gradient in place.
  double logits_bytes = 0;
  // Memory that no formula here covers: CUDA context, NCCL buffers, library workspaces.
  Bytes fixed_memory = gib(1.0);
  // Allocator fragmentation, as a share of activations and logits.
  double fragmentation = 0.08;
  // Share of the GPU's memory that a search leaves free: the estimate is not exact enough to fill
  // it.
  double memory_margin = 0.04;
};

// Bytes of an element of an activation, a weight or a message. Only matrix products are narrower.
constexpr double element_bytes(const CostOptions& options) {
  return options.precision == Precision::kFp32 ? 4 : 2;
}

// Bytes of a quantised element with its share of the blocks' scales.
constexpr double quantised_bytes(Precision p) {
  if (p == Precision::kMxfp8) return 1 + 1.0 / 32;
  if (p == Precision::kNvfp4) return 0.5 + 1.0 / 16;
  return 1;
}
// Bytes that kernels move to quantise one 16-bit element: they read it, read it first for its scale
// if that is not known from earlier steps, and write two copies, because forward and backward
// products need it along different dimensions. 0: the precision quantises nothing.
constexpr double quantise_bytes(Precision p) {
  if (!is_quantised(p)) return 0;
  const bool reads_twice = p == Precision::kFp8Current || p == Precision::kNvfp4;
  return (reads_twice ? 4 : 2) + 2 * quantised_bytes(p);
}

// Whether attention runs in a fused kernel. Context parallelism needs one: it passes keys and
// values around a ring, block by block, and only fused kernels compute on blocks.
constexpr bool runs_fused_attention(const CostOptions& options, const GpuSpec& gpu) {
  return options.attention == AttentionKernel::kFused ||
         (options.attention == AttentionKernel::kAuto && gpu.fused_attention);
}
// Fails if cp > 1 and runs_fused_attention() is false; the error names `cp`.
Result<void> check_ring_attention(const CostOptions& options, const GpuSpec& gpu, std::int64_t cp);

// Whether gradients are reduced under the last backward pass, under ZeRO stage `zero`.
constexpr bool overlaps_gradients(const CostOptions& options, int zero) {
  return options.grad_overlap == GradOverlap::kLastBackward ||
         (options.grad_overlap == GradOverlap::kAuto && zero >= 1) ||
         (options.grad_overlap == GradOverlap::kReplicated && zero == 0);
}

// Rows that the busiest rank's experts compute, relative to the mean rows of a balanced router.
constexpr double expert_load(const CostOptions& options) {
  return options.expert_capacity > 0 ? options.expert_capacity : options.expert_imbalance;
}

// Whether a token that several experts of a rank or node need is sent there once.
constexpr bool sends_tokens_once(const CostOptions& options) {
  return options.expert_dispatch == ExpertDispatch::kDeduplicated && options.expert_capacity == 0;
}

// Bytes per gradient element: the option, or its default for the precision.
constexpr double gradient_bytes(const CostOptions& options) {
  if (options.grad_bytes > 0) return options.grad_bytes;
  return options.precision == Precision::kFp16 ? 2 : 4;
}

// Bytes per logit if logits_bytes is 0: those of the compute type and of an FP32 copy.
constexpr double default_logit_bytes(const CostOptions& options) {
  return element_bytes(options) + 4;
}

// Bytes of optimizer state per parameter. FP32 weights need no master copy.
constexpr double optimizer_bytes(const CostOptions& options) {
  const double master = options.precision == Precision::kFp32 ? 4 : 0;
  return options.optimizer_bytes > master ? options.optimizer_bytes - master : 0;
}

// Applies "name=value,name=value". The error names the option, the value and what would be right.
Result<CostOptions> apply_assumptions(CostOptions options, std::string_view text);
// Reads options by name from an object. Options that it does not state keep those of `options`.
Result<CostOptions> options_from_json(const Json& json, const std::string& where,
                                      CostOptions options = {});
// Returns all options by name, as `predict --json` prints them.
Json options_to_json(const CostOptions& options);

}  // namespace copus
