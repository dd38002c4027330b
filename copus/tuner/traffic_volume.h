// Computes how many bytes one GPU sends in a step, by purpose, without the receivers.
//
// Ring algorithms: in a group of n, in an all-gather or reduce-scatter of a buffer of S bytes each
// member sends (n-1)/n*S, in an all-reduce twice that. Transfers of weights, gradients and
// activations are counted. Scalars (loss, gradient norm) and the norms' gradients under sequence
// parallelism are left out: they are below a thousandth in every layout.
//
// Pure functions; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "copus/base/units.h"
#include "copus/cost/step.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// The purpose of a transfer. Data-parallel transfers run over the ranks that hold the same weights:
// dp*cp of them, and tp*cp*dp/(ep*etp) for experts. What the ranks of one cut expert exchange
// counts as tensor parallel.
enum class Dimension : std::uint8_t { kTp, kCp, kEp, kPp, kDp, kEmbedding };
constexpr std::size_t kDimensions = 6;
constexpr std::array<Dimension, kDimensions> kAllDimensions = {
    Dimension::kTp, Dimension::kCp, Dimension::kEp,
    Dimension::kPp, Dimension::kDp, Dimension::kEmbedding};
std::string_view to_string(Dimension dimension);

using DimensionBytes = std::array<Bytes, kDimensions>;
inline Bytes& of(DimensionBytes& bytes, Dimension d) { return bytes[static_cast<std::size_t>(d)]; }
inline Bytes of(const DimensionBytes& bytes, Dimension d) {
  return bytes[static_cast<std::size_t>(d)];
}

// The bytes that one GPU sends in one pass of one micro-batch through one chunk of the model.
struct PassVolume {
  Bytes tp;
  Bytes etp;  // to the ranks that the same experts are cut over
  Bytes cp;
  // The buffer of one dispatch, including what stays on this GPU, summed over the chunk's layers. A
  // pass has one dispatch and one combine.
  Bytes ep;
};
struct ChunkVolume {
  PassVolume forward;
  PassVolume recompute;
  PassVolume backward;
  Bytes message;  // activations to the next chunk, or their gradient to the previous one

  constexpr PassVolume sum() const {
    return {forward.tp + recompute.tp + backward.tp, forward.etp + recompute.etp + backward.etp,
            forward.cp + recompute.cp + backward.cp, forward.ep + recompute.ep + backward.ep};
  }
};
// REQUIRES here and below: step.validate(plan) passed. `costs` are step.shape_costs(plan).
ChunkVolume chunk_volume(const StepModel& step, const ParallelPlan& plan, const ShapeCosts& costs,
                         std::int64_t chunk);

// The bytes that one GPU sends in a step in a data-parallel ring.
struct ReplicaVolume {
  Bytes reduce;        // of the gradients, once
  Bytes gather;        // of the updated weights, once
  Bytes per_forward;   // for each micro-batch
  Bytes per_backward;  // for each micro-batch
};
// Returns what one GPU sends in a ring of `ring` members that hold the same `params` parameters.
// ZeRO stage 0 all-reduces the gradients once. Stage 1 scatters them and gathers the new weights.
// Stage 2 keeps only its shard of the gradients, so it scatters with every micro-batch. Stage 3
// also gathers the weights for every forward and every backward pass, instead of once.
ReplicaVolume replica_volume(const StepModel& step, const ParallelPlan& plan, double params,
                             std::int64_t ring);

// Returns what one GPU of the first or last stage sends to add the gradients of the tied embedding.
// Zero if there is no tied embedding.
Bytes tied_embedding_volume(const StepModel& step, const ParallelPlan& plan);

// The popularity of expert i is proportional to (i+1)^-skew; 0: a balanced gate. The same experts
// are popular in every layer, which is the worst case for the links. Returns the share of all
// token-to-expert assignments that goes to each rank of an expert-parallel group. No expert gets
// more than 1/topk, because the experts of a token differ.
constexpr double kMaxSkew = 10;
std::vector<double> expert_rank_shares(const MoeSpec& moe, std::int64_t ep, double skew);

// Returns what each member of a ring of `n` sends in an all-gather or reduce-scatter of `buffer`.
Bytes ring_pass(std::int64_t n, Bytes buffer);

}  // namespace copus
