// The memory of one rank in bytes: weights, gradients, optimizer state, activations, logits and
// buffers.
//
// The formulas for activations follow Korthikanti et al. 2022 (arXiv 2205.05198, section 4). They
// add up single tensors, so that they also hold for grouped-query attention, gated MLPs and
// experts.
#pragma once

#include <cstdint>

#include "copus/base/units.h"
#include "copus/cost/compute.h"
#include "copus/cost/options.h"

namespace copus {

// Activations of one micro-batch on one rank, by piece of the model.
struct ActivationBytes {
  Bytes dense;      // one layer with the plain MLP, kept from forward to backward
  Bytes moe;        // one layer with experts, kept from forward to backward
  Bytes embedding;  // first stage
  Bytes head;       // last stage: logits and their softmax
  Bytes gathered;   // buffers that sequence parallelism gathers for one layer's forward pass
  Bytes working;    // transient in one layer's backward (all of a layer's activations under full
                    // recompute)
};

ActivationBytes activation_bytes(const ModelSpec& model, const CostOptions& options,
                                 bool fused_attention, const LayerShape& shape) noexcept;

// Parameters that a pipeline rank holds after tensor and expert parallelism.
struct RankParams {
  double dense = 0;   // replicated over dp*cp
  double expert = 0;  // replicated over expert_dp() ranks

  constexpr double total() const { return dense + expert; }
};

struct MemoryBreakdown {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer;
  Bytes activations;
  Bytes logits;
  Bytes buffers;   // ZeRO-3 gathers, communication buckets, gathered activations
  Bytes overhead;  // context, libraries, fragmentation

  constexpr Bytes total() const {
    return weights + gradients + optimizer + activations + logits + buffers + overhead;
  }
};

// Returns weights, gradients, optimizer state and their buffers at the plan's ZeRO stage.
// `layer_params`: parameters of the rank's largest piece (a layer or the embedding), for which
// stages 2 and 3 need whole buffers.
MemoryBreakdown state_memory(const CostOptions& options, const ParallelPlan& plan,
                             RankParams params, double layer_params) noexcept;

}  // namespace copus
