// How much one GPU sends in a step: the formulas, before anyone asks to whom.
//
// Ring algorithms: in a group of n, an all-gather or reduce-scatter of a buffer of S bytes makes
// each member send (n-1)/n*S, an all-reduce twice that. Counted are the transfers of weights,
// gradients and activations; scalars (loss, gradient norm) and the norms' gradients under sequence
// parallelism are below a thousandth of any layout and left out.
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

// What a transfer is for. Data-parallel transfers run over dp*cp ranks, which hold the same
// weights.
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

// What one GPU sends in one pass of one micro-batch through one model chunk.
struct PassVolume {
  Bytes tp;
  Bytes cp;
  // The buffer of one dispatch, what stays on this GPU included, summed over the chunk's layers. A
  // pass is one dispatch and one combine.
  Bytes ep;
};
struct ChunkVolume {
  PassVolume forward;
  PassVolume recompute;
  PassVolume backward;
  Bytes message;  // activations to the next chunk, or their gradient to the one before

  constexpr PassVolume sum() const {
    return {forward.tp + recompute.tp + backward.tp, forward.cp + recompute.cp + backward.cp,
            forward.ep + recompute.ep + backward.ep};
  }
};
// REQUIRES here and below: step.validate(plan) passed. `costs` are step.shape_costs(plan).
ChunkVolume chunk_volume(const StepModel& step, const ParallelPlan& plan, const ShapeCosts& costs,
                         std::int64_t chunk);

// What one GPU sends in a step over a data-parallel ring of `ring` members that hold the same
// `params`.
struct ReplicaVolume {
  Bytes reduce;        // of the gradients, once
  Bytes gather;        // of the updated weights, once
  Bytes per_forward;   // each micro-batch
  Bytes per_backward;  // each micro-batch
};
// ZeRO stage 0 reduces the gradients once; 1 scatters them and gathers the new weights; 2 keeps
// only its shard of the gradients, so it scatters with every micro-batch; 3 gathers the weights for
// every forward and every backward pass instead.
ReplicaVolume replica_volume(const StepModel& step, const ParallelPlan& plan, double params,
                             std::int64_t ring);

// Gradient of the tied embedding, added up between first and last stage. Zero when there is none.
Bytes tied_embedding_volume(const StepModel& step, const ParallelPlan& plan);

// Popularity of expert i is proportional to (i+1)^-skew; 0: a balanced gate. The same experts are
// popular in every layer, which is the worst case for the links. Share of all token-to-expert
// assignments that go to each rank of an expert-parallel group. No expert takes more than 1/topk,
// because a token's experts differ.
constexpr double kMaxSkew = 10;
std::vector<double> expert_rank_shares(const MoeSpec& moe, std::int64_t ep, double skew);

// What each member of a ring of n sends to pass `buffer` through an all-gather or reduce-scatter.
Bytes ring_pass(std::int64_t n, Bytes buffer);

}  // namespace copus
