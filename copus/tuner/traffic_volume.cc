#include "copus/tuner/traffic_volume.h"

#include <algorithm>
#include <cmath>

namespace copus {
namespace {

// Returns the width of the keys and values of one token on this GPU. Key-value heads are replicated
// if there are fewer than tp. Latent attention exchanges keys and values after the up-projection.
double kv_width(const ModelSpec& model, std::int64_t tp) {
  if (model.mla.enabled) {
    const MlaSpec& a = model.mla;
    return real(model.heads) / real(tp) *
           real(a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim);
  }
  return 2 * std::max(1.0, real(model.kv_heads) / real(tp)) * real(model.head_dim);
}

double element_bytes(const StepModel& step) { return copus::element_bytes(step.options()); }

}  // namespace

std::string_view to_string(Dimension dimension) {
  switch (dimension) {
    case Dimension::kTp:
      return "tp";
    case Dimension::kCp:
      return "cp";
    case Dimension::kEp:
      return "ep";
    case Dimension::kPp:
      return "pp";
    case Dimension::kDp:
      return "dp";
    case Dimension::kEmbedding:
      return "embedding";
  }
  return "?";
}

Bytes ring_pass(std::int64_t n, Bytes buffer) {
  return n <= 1 ? Bytes(0) : buffer * (real(n - 1) / real(n));
}

ChunkVolume chunk_volume(const StepModel& step, const ParallelPlan& plan, const ShapeCosts& costs,
                         std::int64_t chunk) {
  const ModelSpec& model = step.model();
  ChunkVolume volume;
  const double tokens = real(plan.micro_batch) * real(step.seq_len()) / real(plan.cp);
  const double split_tokens = tokens / (plan.sp ? real(plan.tp) : 1.0);
  const ExpertRows rows = expert_rows(model, step.options(), step.layer_shape(plan));
  const Bytes activation(tokens * real(model.hidden) * element_bytes(step));
  const StepModel::RankPieces pieces = step.pieces_of_chunk(plan, costs, chunk);
  const double layers = pieces.dense_layers + pieces.moe_layers;
  const bool repeats_layers = plan.recompute == Recompute::kFull;

  // Tensor parallelism (Shoeybi et al. 2019, section 3): attention and MLP each end a forward pass
  // with an all-reduce, and a backward pass with another. With sequence parallelism (Korthikanti et
  // al. 2022, section 4.2.2) each becomes a reduce-scatter and an all-gather of the same volume.
  // Sequence parallelism keeps only the split input of a column-parallel product, so it gathers
  // that input once more for the weights' gradient. The counts are ring passes; an all-reduce is
  // two.
  const double regather = plan.sp ? 1 : 0;
  // In a layer with experts, the shared experts take the MLP's part. The routed ones do so only
  // without sequence parallelism, because then all tp ranks hold the same tokens.
  const double expert_regions = (model.moe.shared_experts > 0 ? 1 : 0) + (plan.sp ? 0 : 1);
  const double regions = layers + pieces.dense_layers + pieces.moe_layers * expert_regions;
  double forward = regions * 2;
  double backward = regions * (2 + regather);
  if (repeats_layers) volume.recompute.tp = ring_pass(plan.tp, activation) * forward;
  // The vocabulary-parallel embedding adds partial rows in the forward pass, the head adds partial
  // gradients in the backward pass. With sequence parallelism each scatters there and gathers in
  // the opposite pass.
  if (pieces.embedding) {
    forward += plan.sp ? 1 : 2;
    backward += plan.sp ? 1 : 0;
  }
  if (pieces.head) {
    forward += plan.sp ? 1 : 0;
    backward += plan.sp ? 1 + regather : 2;
  }
  volume.forward.tp = ring_pass(plan.tp, activation) * forward;
  volume.backward.tp = ring_pass(plan.tp, activation) * backward;

  // Ring attention (Liu et al. 2023): a block of keys and values visits cp-1 other ranks. In the
  // backward pass its gradient travels with it.
  const Bytes block(tokens * kv_width(model, plan.tp) * element_bytes(step));
  volume.forward.cp = block * (layers * real(plan.cp - 1));
  volume.backward.cp = volume.forward.cp * 2.0;
  if (plan.recompute != Recompute::kNone) volume.recompute.cp = volume.forward.cp;

  // The ranks of a cut expert gather the rows that each received, and scatter the sums of their
  // results.
  if (plan.sp || plan.tp == 1) {
    const Bytes gathered(pieces.moe_layers * rows.computed * real(model.hidden) *
                         element_bytes(step));
    volume.forward.etp = ring_pass(plan.expert_tp(), gathered) * 2.0;
    volume.backward.etp = volume.forward.etp;
    if (repeats_layers) volume.recompute.etp = volume.forward.etp;
  }
  if (plan.ep > 1) {
    volume.forward.ep =
        Bytes(pieces.moe_layers * rows.sent * real(model.hidden) * element_bytes(step));
    volume.backward.ep = volume.forward.ep;
    if (repeats_layers) volume.recompute.ep = volume.forward.ep;
  }

  volume.message = Bytes(split_tokens * real(model.hidden) * element_bytes(step));
  return volume;
}

ReplicaVolume replica_volume(const StepModel& step, const ParallelPlan& plan, double params,
                             std::int64_t ring) {
  const Bytes grads = ring_pass(ring, Bytes(params * gradient_bytes(step.options())));
  const Bytes weights = ring_pass(ring, Bytes(params * element_bytes(step)));
  switch (plan.zero) {
    case 0:
      return {grads * 2.0, Bytes(0), Bytes(0), Bytes(0)};
    case 1:
      return {grads, weights, Bytes(0), Bytes(0)};
    case 2:
      return {Bytes(0), weights, Bytes(0), grads};
    default:
      return {Bytes(0), Bytes(0), weights, weights + grads};
  }
}

Bytes tied_embedding_volume(const StepModel& step, const ParallelPlan& plan) {
  const ModelSpec& model = step.model();
  if (!model.tied_embeddings || plan.pp <= 1) return Bytes(0);
  const Bytes gradient(real(model.vocab) * real(model.hidden) / real(plan.tp) *
                       gradient_bytes(step.options()));
  return ring_pass(2, gradient) * 2.0;
}

std::vector<double> expert_rank_shares(const MoeSpec& moe, std::int64_t ep, double skew) {
  const auto experts = static_cast<std::size_t>(moe.experts);
  const double limit = 1.0 / real(std::max<std::int64_t>(1, moe.experts_per_token));
  std::vector<double> share(experts);
  for (std::size_t i = 0; i < experts; ++i) share[i] = std::pow(static_cast<double>(i + 1), -skew);

  // Shares fall with i, so the experts at the limit are the first ones. The rest of their tokens
  // goes to the other experts, in proportion to their shares.
  std::vector<double> rest(share);
  for (std::size_t i = experts; i-- > 1;) rest[i - 1] += rest[i];
  double left = 1;
  for (std::size_t i = 0; i < experts; ++i) {
    share[i] = rest[i] > 0 ? std::min(limit, left * share[i] / rest[i]) : 0;
    left -= share[i];
  }

  std::vector<double> by_rank(static_cast<std::size_t>(ep));
  for (std::size_t i = 0; i < experts; ++i) {
    by_rank[i * static_cast<std::size_t>(ep) / experts] += share[i];
  }
  return by_rank;
}

}  // namespace copus
