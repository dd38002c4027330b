// CostOptions: what the model assumes of the training engine. Each is a named option with a
// default; the defaults are those of Megatron-LM (fp32 gradients, reduction after the last backward
// pass unless the optimizer is sharded).
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
  // Fused where the GPU has such a kernel and the model has no dropout but the attention's:
  // Megatron-LM's GPT recipe, the one with dropout, runs unfused unless asked.
  kAuto,
  kFused,    // flash attention: scores never reach memory
  kUnfused,  // scores, softmax and dropout are separate kernels, scores are stored
};

// When data-parallel gradients are reduced.
enum class GradOverlap {
  kAuto,  // under the last backward when the optimizer is sharded (zero >= 1), after it otherwise
  kNone,  // after the last backward pass
  kLastBackward,  // bucket by bucket under the last micro-batch's backward pass
  kReplicated,    // so where the optimizer is not sharded (zero = 0), after it otherwise
};

struct CostOptions {
  Precision precision = Precision::kBf16;
  AttentionKernel attention = AttentionKernel::kAuto;
  GradOverlap grad_overlap = GradOverlap::kAuto;
  StageCut stage_cut = StageCut::kLayers;

  // Per parameter; 0: FP32 accumulation as Megatron-LM does with BF16, two bytes with FP16.
  double grad_bytes = 0;
  double optimizer_bytes = 12;  // per parameter: FP32 master weights and Adam's two moments

  // Rate of the fused attention kernel, as a multiple of the best known for the GPU.
  double attention_rate = 1;
  // Bytes that element-wise kernels move, as a multiple of what fused ones would.
  double elementwise = 1;
  // Share of a hidden transfer that still costs time, because it takes cores and memory bandwidth
  // from the computation.
  double overlap_contention = 0.2;
  // Share of the gradients that are ready only when the backward pass ends (last bucket): never
  // hidden.
  double exposed_bucket = 0.05;
  // Share of tensor-parallel communication hidden under computation (async TP); 0: all exposed.
  double tp_overlap = 0;
  // The same, if more, for dense FP8 products in a node with sequences parallel: Transformer
  // Engine, which makes such products, can exchange their pieces meanwhile (user buffers).
  double tp_overlap_fp8 = 0;
  // Waiting for the slowest peer and for the launch, at each exposed tensor-parallel collective.
  Seconds tp_skew = microseconds(40);
  // Share of context-parallel exchange that ring attention can hide under its own computation.
  double cp_overlap = 0.8;
  // Share of the expert all-to-all hidden under computation.
  double ep_overlap = 0;
  // Share of what pipeline messages cost (posting, latency, transfer, congestion, layers that they
  // slow down) that is hidden, beside what a schedule hides by itself.
  double pp_overlap = 0;

  // The host issues kernels: a layer takes at least this long however small it is.
  Seconds host_layer_forward = microseconds(400);
  Seconds host_layer_backward = microseconds(500);
  // And this much longer for each tensor-parallel collective in it.
  Seconds host_collective = microseconds(0);
  // And this much longer for each expert that the rank holds, forward and backward: what is
  // launched expert by expert.
  Seconds host_expert = microseconds(0);
  // A rank's own time around the pipeline messages of one forward or backward (posting,
  // synchronising), beside their latency.
  Seconds hop_overhead = microseconds(120);
  // While a pipeline message over the network is pending, what a layer and each step of a
  // tensor-parallel ring in it take longer (progress threads that share cores with the one that
  // issues kernels).
  Seconds pending_layer = microseconds(0);
  Seconds pending_ring_step = microseconds(0);
  // What a pipeline message over the network takes longer, to and from each neighbour, at 64 nodes;
  // it grows as the network's congestion does.
  Seconds hop_congestion = microseconds(0);
  // Waiting for the slowest of many nodes, as a share of the step, per doubling of the nodes.
  double straggler = 0;
  // Once per step: data loading, loss averaging, clipping, logging.
  Seconds step_overhead = microseconds(5000);

  // Memory per parameter beside weights, accumulated gradients and optimizer state, where gradients
  // are reduced: buckets in the compute type, flat copies.
  double extra_state_bytes = 0;
  // Activations kept between forward and backward, as a multiple of what fused kernels keep.
  double activation_scale = 1;
  // Layers by which the host may be ahead of the GPU: what sequence parallelism gathers for them
  // stays allocated until the GPU has come by.
  double run_ahead_layers = 0;
  // Of one logit; 0: the compute type's, and an FP32 copy that becomes softmax and gradient in
  // place.
  double logits_bytes = 0;
  // Memory that no formula of ours names: CUDA context, NCCL buffers, library workspaces.
  Bytes fixed_memory = gib(1.0);
  // Allocator fragmentation, as a share of the activations.
  double fragmentation = 0.08;
  // Share of the GPU's memory that a search leaves free: the estimate is not exact enough to fill
  // it.
  double memory_margin = 0.04;
};

// Bytes of an activation, a weight or a message. FP8 is a format of products alone.
constexpr double element_bytes(const CostOptions& options) {
  return options.precision == Precision::kFp32 ? 4 : 2;
}

// Context parallelism passes keys and values around a ring, block by block, which fused kernels
// alone do. A model that would run unfused by its recipe (kAuto, dropout) can still run so.
constexpr bool runs_ring_attention(const CostOptions& options, const GpuSpec& gpu) {
  return options.attention == AttentionKernel::kFused ||
         (options.attention == AttentionKernel::kAuto && gpu.fused_attention);
}
// The error says so of a plan's `cp`.
Result<void> check_ring_attention(const CostOptions& options, const GpuSpec& gpu, std::int64_t cp);

// Whether gradients are reduced under the last backward pass, under ZeRO stage `zero`.
constexpr bool overlaps_gradients(const CostOptions& options, int zero) {
  return options.grad_overlap == GradOverlap::kLastBackward ||
         (options.grad_overlap == GradOverlap::kAuto && zero >= 1) ||
         (options.grad_overlap == GradOverlap::kReplicated && zero == 0);
}

// Bytes per gradient element: the option, or its default for the precision.
constexpr double gradient_bytes(const CostOptions& options) {
  if (options.grad_bytes > 0) return options.grad_bytes;
  return options.precision == Precision::kFp16 ? 2 : 4;
}

// Bytes per logit where logits_bytes is 0: the compute type's, and an FP32 copy.
constexpr double default_logit_bytes(const CostOptions& options) {
  return element_bytes(options) + 4;
}

// Bytes of optimizer state per parameter. FP32 weights are their own master copy.
constexpr double optimizer_bytes(const CostOptions& options) {
  const double master = options.precision == Precision::kFp32 ? 4 : 0;
  return options.optimizer_bytes > master ? options.optimizer_bytes - master : 0;
}

// Applies "name=value,name=value". The error names the option, the value and what would be right.
Result<CostOptions> apply_assumptions(CostOptions options, std::string_view text);
// Options by name from an object; those that it does not state keep their defaults.
Result<CostOptions> options_from_json(const Json& json, const std::string& where);
// All options by name, as printed by predict --json.
Json options_to_json(const CostOptions& options);

}  // namespace copus
