// Memory of one rank: weights, gradients, optimizer state, activations, logits, buffers. Bytes.
//
// Activation formulas follow Korthikanti et al. 2022 (arXiv 2205.05198, section 4), tensor by
// tensor instead of summed, so that grouped-query attention, gated MLPs and experts come out right.
#pragma once

#include <cstdint>

#include "copus/base/units.h"
#include "copus/cost/compute.h"
#include "copus/cost/options.h"

namespace copus {

// What one micro-batch leaves on a rank, per piece of the model.
struct ActivationBytes {
  Bytes dense;      // one layer with the plain MLP, as kept from forward to backward
  Bytes moe;        // one layer with experts
  Bytes embedding;  // first stage
  Bytes head;       // last stage: logits and their softmax
  Bytes gathered;   // what sequence parallelism gathers for one layer's forward
  Bytes working;    // transient in one layer's backward (all of a layer's activations under full
                    // recompute)
};

ActivationBytes activation_bytes(const ModelSpec& model, const CostOptions& options,
                                 bool fused_attention, const LayerShape& shape) noexcept;

// Parameters that a pipeline rank holds after tensor and expert parallelism.
struct RankParams {
  double dense = 0;   // replicated over dp*cp
  double expert = 0;  // replicated over dp*cp/ep

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

// Weights, gradients and optimizer state by ZeRO stage. `layer_params`: the largest piece that
// stage 3 gathers whole.
MemoryBreakdown state_memory(const CostOptions& options, const ParallelPlan& plan,
                             RankParams params, double layer_params) noexcept;

}  // namespace copus
