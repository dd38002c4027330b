#include "copus/cost/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace copus {
namespace {

// A tensor-parallel ring through n nodes congests the network for pipeline messages as much as a
// job on kRingLoad * n nodes: nanotron's runs with tp = 32 stall on 8 nodes as all its runs do on
// 64.
constexpr std::int64_t kRingLoad = 16;

// Returns the time of one micro-batch, forward and backward.
Seconds piece_time(const PieceCost& piece) { return (piece.forward + piece.backward()).total(); }

// Returns the part of `transfer` that is not hidden if `window` of computation runs beside it and
// the rank waits for `slack` anyway.
Seconds exposed(Seconds transfer, Seconds window, Seconds slack, double never_hidden,
                double contention) {
  const Seconds hidden = min(transfer * (1 - never_hidden), window);
  return max(transfer - hidden * (1 - contention) - slack, Seconds(0));
}

}  // namespace

// The work of one micro-batch on one pipeline rank, in all its chunks.
struct StepModel::RankWork {
  PieceCost cost;
  Seconds forward() const { return cost.forward.total(); }
  Seconds backward_input() const { return cost.backward_input.total() + cost.recompute.total(); }
  Seconds backward_weight() const { return cost.backward_weight.total(); }
  Seconds total() const { return forward() + backward_input() + backward_weight(); }
};

// A pipeline rank that the estimate considers: predict() considers every rank, closed_form() only
// those that stand for all.
struct StepModel::Stage {
  RankPieces pieces;
  RankWork work;
  std::int64_t rank = 0;
  Seconds slack;  // from the end of its last backward pass to the end of the pipeline
};

// The times that follow the pipeline on one rank.
struct StepModel::Finish {
  Seconds dp;
  Seconds optimizer;
};

StepModel::StepModel(const ModelSpec& model, const ClusterSpec& cluster, std::int64_t seq_len,
                     std::int64_t global_batch, const CostOptions& options,
                     const EngineLimits* limits)
    : model_(model),
      cluster_(cluster),
      options_(options),
      limits_(limits),
      seq_len_(seq_len),
      global_batch_(global_batch),
      compute_(model, cluster, options),
      collectives_(cluster),
      memory_rate_(cluster.gpu.memory_bandwidth * cluster.gpu.efficiency.memory),
      weight_bytes_(element_bytes(options)),
      grad_bytes_(gradient_bytes(options)) {
  // Every tensor-parallel rank holds norms, routers and MLA's low-rank projections into the latent
  // space whole.
  const double whole_latent =
      model.mla.enabled ? real(model.hidden) * real(model.mla.q_lora_rank + model.mla.kv_lora_rank +
                                                    model.mla.qk_rope_head_dim)
                        : 0;
  kv_split_ =
      model.mla.enabled ? 0 : 2 * real(model.hidden) * real(model.kv_heads * model.head_dim);
  attention_split_ = real(model.attention_params()) - whole_latent - kv_split_;
  layer_whole_ = 2 * real(model.norm_params()) + whole_latent;
  mlp_split_ = real(model.dense_mlp_params());
  if (model.is_moe()) {
    expert_split_ = real(model.expert_params()) * real(model.moe.experts);
    moe_dense_split_ = real(model.shared_expert_params());
    moe_whole_ = real(model.router_params());
  }
  const double positions =
      model.positions == Positions::kLearned ? real(model.max_positions * model.hidden) : 0;
  embedding_split_ = real(model.embedding_params()) - positions;
  embedding_whole_ = positions;
  // If the embedding is tied, the last of several stages has its own copy of the matrix.
  head_split_ = real(model.vocab) * real(model.hidden);
  head_whole_ = real(model.norm_params());
}

LayerShape StepModel::layer_shape(const ParallelPlan& plan) const noexcept {
  return {plan.tp,          plan.cp,  plan.ep, plan.expert_tp(),
          plan.micro_batch, seq_len_, plan.sp, plan.recompute};
}

ShapeCosts StepModel::shape_costs(const ParallelPlan& plan) const noexcept {
  const LayerShape shape = layer_shape(plan);
  ShapeCosts costs;
  costs.time = compute_.layer_costs(shape);
  costs.activations = activation_bytes(model_, options_, compute_.fused_attention(), shape);
  costs.message = Bytes(compute_.element_bytes() * real(plan.micro_batch) * real(seq_len_) /
                        real(plan.cp) * real(model_.hidden) / (plan.sp ? real(plan.tp) : 1.0));
  return costs;
}

RankParams StepModel::params(const ParallelPlan& plan, const RankPieces& p) const noexcept {
  const double tp = real(plan.tp);
  RankParams params;
  // Key-value heads are replicated if there are fewer heads than tensor-parallel ranks.
  const double kv_tp = std::min(tp, real(model_.kv_heads));
  params.dense =
      (p.dense_layers + p.moe_layers) * (attention_split_ / tp + kv_split_ / kv_tp + layer_whole_) +
      p.dense_layers * mlp_split_ / tp + p.moe_layers * (moe_dense_split_ / tp + moe_whole_);
  params.expert = p.moe_layers * expert_split_ / real(plan.expert_tp() * plan.ep);
  if (p.embedding) params.dense += embedding_split_ / tp + embedding_whole_;
  if (p.head)
    params.dense += head_whole_ + (p.embedding && model_.tied_embeddings ? 0 : head_split_ / tp);
  return params;
}

StepModel::RankWork StepModel::work(const ShapeCosts& costs, const RankPieces& p) const noexcept {
  // A message costs its posting, the share of its transfer that slows the computation beside it,
  // the delay in a congested network, and the extra time of layers while it is pending.
  Seconds forward = (options_.hop_overhead +
                     collectives_.time_at_link_rate(costs.message) * options_.overlap_contention) *
                    p.messages;
  forward += options_.hop_congestion * (p.congestion * p.neighbours * p.messages);
  Seconds backward = forward;
  if (p.pending) {
    forward += p.dense_layers * costs.time.dense.pending_forward +
               p.moe_layers * costs.time.moe.pending_forward;
    backward += p.dense_layers * costs.time.dense.pending_backward +
                p.moe_layers * costs.time.moe.pending_backward;
  }
  RankWork w;
  w.cost.forward.pp = forward * (1 - options_.pp_overlap);
  w.cost.backward_input.pp = backward * (1 - options_.pp_overlap);
  auto add = [&w](double times, const PieceCost& piece) {
    w.cost.forward += times * piece.forward;
    w.cost.backward_input += times * piece.backward_input;
    w.cost.backward_weight += times * piece.backward_weight;
    w.cost.recompute += times * piece.recompute;
  };
  if (p.dense_layers > 0) add(p.dense_layers, costs.time.dense);
  if (p.moe_layers > 0) add(p.moe_layers, costs.time.moe);
  if (p.embedding) add(1, costs.time.embedding);
  if (p.head) add(1, costs.time.head);
  return w;
}

StageSplit StepModel::balanced(const ParallelPlan& plan, const ShapeCosts& costs) const noexcept {
  const Seconds layer = mixed_layer_time(costs);
  return balance_chunks(model_.layers, plan.pp * plan.vp, piece_time(costs.time.embedding) / layer,
                        piece_time(costs.time.head) / layer);
}

StageSplit StepModel::unsplit(std::int64_t chunks) const noexcept {
  if (options_.stage_cut == StageCut::kLayers || chunks == 1)
    return equal_split(model_.layers, chunks);
  StageSplit split;
  split.by_work = true;
  return split;
}

Result<void> StepModel::validate(const ParallelPlan& plan) const {
  return plan.validate(model_, cluster_, seq_len_, global_batch_, options_.stage_cut, limits_);
}

LayerShare StepModel::layers_by_work(const ParallelPlan& plan, const ShapeCosts& costs,
                                     std::int64_t chunk) const noexcept {
  // Leading dense layers come first. If others lie among the layers with experts, a cut takes its
  // share of both kinds.
  const std::int64_t leading = model_.is_moe() ? model_.moe.first_dense_layers : model_.layers;
  const ModelWork work{piece_time(costs.time.embedding), real(leading),
                       piece_time(costs.time.dense),     real(model_.layers - leading),
                       mixed_layer_time(costs),          piece_time(costs.time.head)};
  LayerShare share = cut_by_work(work, plan.pp * plan.vp, chunk);
  const double mixed = share.moe_layers, moe = expert_share();
  share.dense_layers += mixed * (1 - moe);
  share.moe_layers = mixed * moe;
  return share;
}

// Returns which share of the layers after the leading dense ones has experts.
double StepModel::expert_share() const noexcept {
  if (!model_.is_moe()) return 0;
  return real(model_.moe_layers()) / real(model_.layers - model_.moe.first_dense_layers);
}

// Returns the mean time of a layer after the leading dense ones.
Seconds StepModel::mixed_layer_time(const ShapeCosts& costs) const noexcept {
  const double moe = expert_share();
  if (moe <= 0) return piece_time(costs.time.dense);
  if (moe >= 1) return piece_time(costs.time.moe);
  return piece_time(costs.time.moe) * moe + piece_time(costs.time.dense) * (1 - moe);
}

bool StepModel::crosses_nodes(const ParallelPlan& plan) const noexcept {
  return plan.pp > 1 &&
         place_group(plan.pp, plan.tp * plan.cp * plan.dp, cluster_.gpus_per_node).nodes > 1;
}

double StepModel::message_congestion(const ParallelPlan& plan) const noexcept {
  if (options_.hop_congestion.v <= 0 || !crosses_nodes(plan)) return 0;
  const std::int64_t ring = place_group(plan.tp, 1, cluster_.gpus_per_node).nodes;
  return congestion_growth(std::max(cluster_.nodes, kRingLoad * ring));
}

Seconds StepModel::message_time(const ParallelPlan& plan, const ShapeCosts& costs) const noexcept {
  if (plan.pp <= 1) return Seconds(0);
  return collectives_.hop(plan.pp, plan.tp * plan.cp * plan.dp, costs.message);
}

Seconds StepModel::hop_time(const ParallelPlan& plan, const ShapeCosts& costs) const noexcept {
  return message_time(plan, costs) * (1 - options_.pp_overlap);
}

Seconds StepModel::embedding_sync(const ParallelPlan& plan) const noexcept {
  if (!model_.tied_embeddings || plan.pp <= 1) return Seconds(0);
  const GroupPlace ends = place_pipeline_ends(cluster_.nodes);
  return collectives_.time(Collective::kAllReduce, ends,
                           Bytes(grad_bytes_ * embedding_split_ / real(plan.tp)));
}

// Returns the time of one rank's gradient reduction, weight gathering and optimizer. The first two
// may run under its share of the pipeline.
StepModel::Finish StepModel::finish(const ParallelPlan& plan, const Stage& stage) const noexcept {
  const RankWork& rank = stage.work;
  const Seconds slack = stage.slack;
  const RankParams p = params(plan, stage.pieces);
  const std::int64_t replicas = plan.dp * plan.cp;
  const GroupPlace group = place_group(replicas, plan.tp, cluster_.gpus_per_node);
  const std::int64_t expert_replicas = model_.is_moe() ? plan.expert_dp() : 1;
  const GroupPlace expert_group =
      place_group(expert_replicas, plan.expert_tp() * plan.ep, cluster_.gpus_per_node);
  // Time to transfer all of the rank's parameters in `parts` collectives.
  auto transfer = [&](Collective op, double bytes_each, double parts = 1) {
    return parts * (collectives_.time(op, group, Bytes(bytes_each * p.dense / parts)) +
                    collectives_.time(op, expert_group, Bytes(bytes_each * p.expert / parts)));
  };
  const bool overlap = overlaps_gradients(options_, plan.zero);
  // An interleaved rank finishes chunk after chunk with its last pp micro-batches. So it can reduce
  // the gradients of a chunk while it computes the chunks after it, and it can gather weights of
  // later chunks while the first pp micro-batches pass the earlier ones.
  const double passes = plan.schedule == ScheduleKind::kInterleaved && plan.vp > 1
                            ? 1 + real(plan.pp) * real(plan.vp - 1) / real(plan.vp)
                            : 1;
  const Seconds backward_window =
      overlap ? (rank.backward_input() + rank.backward_weight()) * passes : Seconds(0);
  const Seconds forward_window = overlap ? rank.forward() * passes : Seconds(0);
  const double tail = options_.exposed_bucket;
  const double contention =
      options_.overlap_contention * collectives_.intensity(Collective::kReduceScatter, group);
  const double m = real(plan.micro_batches(global_batch_));
  const double gathered = is_quantised(options_.precision)
                              ? std::min(weight_bytes_, options_.quantised_gather_bytes)
                              : weight_bytes_;

  Finish f;
  if (replicas > 1 || expert_replicas > 1) {
    if (plan.zero == 0) {
      f.dp = exposed(transfer(Collective::kAllReduce, grad_bytes_), backward_window, slack, tail,
                     contention);
    } else if (plan.zero <= 2) {
      // Stage 1 reduces once per step. Stage 2 keeps only its shard of the gradients, so it reduces
      // with every micro-batch.
      const Seconds scatter = transfer(Collective::kReduceScatter, grad_bytes_);
      const Seconds gather = transfer(Collective::kAllGather, gathered);
      f.dp =
          exposed(scatter, backward_window, slack, tail, contention) * (plan.zero == 2 ? m : 1.0) +
          exposed(gather, forward_window, slack, tail, contention);
    } else {
      // Stage 3 gathers every layer's weights for forward and again for backward, and scatters its
      // gradients, with one collective per layer or several. If weights are gathered ahead of their
      // use, computation hides that.
      const double layers = std::max(1.0, stage.pieces.dense_layers + stage.pieces.moe_layers);
      const double parts = layers * options_.zero3_collectives;
      const Seconds gather = transfer(Collective::kAllGather, gathered, parts);
      const double waited = std::max(1 / layers, 1 - options_.weight_prefetch);
      const Seconds scatter = transfer(Collective::kReduceScatter, grad_bytes_, parts);
      const Seconds backward = rank.backward_input() + rank.backward_weight();
      const Seconds left_over = overlap ? max(backward - gather, Seconds(0)) : Seconds(0);
      f.dp = m * (exposed(gather, rank.forward(), Seconds(0), waited, contention) +
                  exposed(gather, backward, Seconds(0), waited, contention) +
                  exposed(scatter, left_over, Seconds(0), std::max(tail, 1 / layers), contention));
    }
  }
  // Adam reads the gradient (twice, because of the norm), reads and writes three FP32 states, and
  // writes the weight. The rank clears every gradient, also at stages 2 and 3, where the backward
  // pass writes it layer by layer.
  const double shard =
      plan.zero >= 1 ? p.dense / real(replicas) + p.expert / real(expert_replicas) : p.total();
  const double touched = shard * (2 * grad_bytes_ + 2 * optimizer_bytes(options_) + weight_bytes_) +
                         p.total() * grad_bytes_;
  f.optimizer = Bytes(touched) / memory_rate_;
  return f;
}

StepBreakdown StepModel::breakdown(const RankWork& rank, Seconds pipeline,
                                   std::int64_t micro_batches) const noexcept {
  const double m = real(micro_batches);
  const PieceTime work = rank.cost.forward + rank.cost.backward_input + rank.cost.backward_weight;
  StepBreakdown b;
  b.compute = work.compute * m;
  b.recompute = rank.cost.recompute.compute * m;
  b.tp = (work.tp + rank.cost.recompute.tp) * m;
  b.cp = (work.cp + rank.cost.recompute.cp) * m;
  b.ep = (work.ep + rank.cost.recompute.ep) * m;
  // With a single stage, rounding may make this slightly negative.
  b.pipeline = max(pipeline - (rank.total() - work.pp) * m, Seconds(0));
  b.overhead = options_.step_overhead;
  return b;
}

StepModel::RankPieces StepModel::pieces_of_rank(const ParallelPlan& plan, const ShapeCosts& costs,
                                                const StageSplit& split,
                                                std::int64_t rank) const noexcept {
  const std::int64_t chunks = plan.pp * plan.vp;
  RankPieces p;
  p.messages = plan.pp > 1 ? real(plan.vp) : 0;
  p.pending = crosses_nodes(plan);
  p.congestion = message_congestion(plan);
  p.neighbours = plan.pp > 2 ? 2 : 1;
  p.embedding = rank == 0;
  p.head = rank == plan.pp - 1;
  if (split.by_work) {
    for (std::int64_t c = rank; c < chunks; c += plan.pp) {
      const LayerShare share = layers_by_work(plan, costs, c);
      p.dense_layers += share.dense_layers;
      p.moe_layers += share.moe_layers;
    }
    return p;
  }
  // The thinner chunks are `thin` to chunks - 2. `upto` counts this rank's chunks up to `chunk`, so
  // the difference of two counts is the number of this rank's thinner chunks.
  auto upto = [&](std::int64_t chunk) { return chunk < rank ? 0 : (chunk - rank) / plan.pp + 1; };
  const std::int64_t thin = chunks - 1 - split.thinner;
  std::int64_t layers = plan.vp * split.middle - (upto(chunks - 2) - upto(thin - 1));
  if (rank == 0) layers += split.first - split.middle;
  if (rank == plan.pp - 1) layers += split.last - (chunks > 1 ? split.middle : split.first);
  std::int64_t dense = layers;
  if (model_.is_moe()) {
    // Leading dense layers sit in the first chunks, others anywhere.
    dense = 0;
    for (std::int64_t c = rank; c < chunks; c += plan.pp) {
      const std::int64_t before = layers_before_chunk(split, chunks, c);
      if (model_.moe.layer_step == 1 && before >= model_.moe.first_dense_layers) break;
      dense += dense_among(before, layers_of_chunk(split, chunks, c));
    }
  }
  p.dense_layers = real(dense);
  p.moe_layers = real(layers - dense);
  return p;
}

// Returns how many of `count` layers from layer `first` on have the plain MLP.
std::int64_t StepModel::dense_among(std::int64_t first, std::int64_t count) const noexcept {
  return count - (model_.moe_layers_before(first + count) - model_.moe_layers_before(first));
}

StepModel::RankPieces StepModel::pieces_of_chunk(const ParallelPlan& plan, const ShapeCosts& costs,
                                                 std::int64_t chunk) const {
  RankPieces pieces;
  if (plan.is_cut_by_work(options_.stage_cut)) {
    const LayerShare share = layers_by_work(plan, costs, chunk);
    pieces.dense_layers = share.dense_layers;
    pieces.moe_layers = share.moe_layers;
  } else {
    std::int64_t before = 0;
    for (std::int64_t c = 0; c < chunk; ++c) before += plan.chunk_layers(c, model_);
    const std::int64_t layers = plan.chunk_layers(chunk, model_);
    const std::int64_t dense = dense_among(before, layers);
    pieces.dense_layers = real(dense);
    pieces.moe_layers = real(layers - dense);
  }
  pieces.messages = plan.pp > 1 ? 1 : 0;
  pieces.pending = crosses_nodes(plan);
  pieces.congestion = message_congestion(plan);
  pieces.neighbours = plan.pp > 2 ? 2 : 1;
  pieces.embedding = chunk == 0;
  pieces.head = chunk == plan.pp * plan.vp - 1;
  return pieces;
}

StepModel::RankPieces StepModel::pieces_of_rank(const ParallelPlan& plan, const ShapeCosts& costs,
                                                std::int64_t rank) const {
  RankPieces sum;
  for (std::int64_t v = 0; v < plan.vp; ++v) {
    const RankPieces p = pieces_of_chunk(plan, costs, v * plan.pp + rank);
    sum.dense_layers += p.dense_layers;
    sum.moe_layers += p.moe_layers;
    sum.messages += p.messages;
    sum.pending = p.pending;
    sum.congestion = p.congestion;
    sum.neighbours = p.neighbours;
    sum.embedding = sum.embedding || p.embedding;
    sum.head = sum.head || p.head;
  }
  return sum;
}

MemoryBreakdown StepModel::memory(const ParallelPlan& plan, const ShapeCosts& costs,
                                  const RankPieces& pieces,
                                  double chunks_in_flight) const noexcept {
  const bool moe = model_.is_moe();
  double layer = params(plan, {moe ? 0.0 : 1.0, moe ? 1.0 : 0.0, 0, false, false}).total();
  // An engine that gathers tensor by tensor holds one matrix at a time.
  if (plan.zero == 3 && options_.zero3_collectives > 1 && !moe)
    layer = real(model_.hidden) * real(model_.ffn) / real(plan.tp);
  const double largest = std::max(layer, embedding_split_ / real(plan.tp));
  MemoryBreakdown m = state_memory(options_, plan, params(plan, pieces), largest);
  const double held = chunks_in_flight / real(plan.vp);  // whole-rank micro-batches
  m.activations = held * (pieces.dense_layers * costs.activations.dense +
                          pieces.moe_layers * costs.activations.moe) +
                  costs.activations.working;
  if (pieces.embedding) m.activations += held * costs.activations.embedding;
  if (pieces.head) {
    // GPipe keeps the logits of every micro-batch. ZB-H1 keeps their gradients (a third of the
    // bytes that the loss needs) until the weight part.
    const double kept = plan.schedule == ScheduleKind::kGPipe ? chunks_in_flight
                        : plan.schedule == ScheduleKind::kZeroBubble
                            ? 1 + (chunks_in_flight - 1) / 3
                            : 1;
    m.logits = costs.activations.head * kept;
  }
  m.overhead = options_.fixed_memory + options_.fragmentation * (m.activations + m.logits);
  if (options_.run_ahead_layers > 0) m.buffers += run_ahead(plan, costs, pieces, held, m);
  return m;
}

// Returns the memory, in addition to `need`, of buffers that are gathered for layers which the host
// has issued and the GPU has not reached. If waiting for pipeline messages makes the layers
// host-bound, the host leads only while the pipeline fills, when the rank does not hold all its
// activations yet. The allocator waits for the GPU instead of failing, so the buffers take at most
// the free memory.
Bytes StepModel::run_ahead(const ParallelPlan& plan, const ShapeCosts& costs,
                           const RankPieces& pieces, double held,
                           const MemoryBreakdown& need) const noexcept {
  const double layers = pieces.dense_layers + pieces.moe_layers;
  if (layers <= 0) return Bytes(0);
  const PieceCost& layer = pieces.moe_layers > 0 ? costs.time.moe : costs.time.dense;
  // Micro-batches that the host issues before it has to wait.
  double unheld = real(plan.micro_batches(global_batch_));
  if (plan.pp > 1) unheld = pieces.embedding ? std::min(held, real(plan.pp - 1)) : 1;
  Bytes extra = costs.activations.gathered *
                (std::min(options_.run_ahead_layers, layers * unheld) * (1 - pieces.congestion));
  if (pieces.pending && layer.pending_forward.v > 0) {
    const Bytes one =
        pieces.dense_layers * costs.activations.dense + pieces.moe_layers * costs.activations.moe;
    extra -= (one * std::max(0.0, held - unheld) + costs.activations.working) *
             (1 + options_.fragmentation);
  }
  return max(Bytes(0), min(extra, budget() - need.total()));
}

// Returns the stage whose work takes longest; of several, the first.
const StepModel::Stage& StepModel::slowest_of(std::span<const Stage> stages) noexcept {
  const Stage* slowest = &stages.front();
  for (const Stage& stage : stages.subspan(1)) {
    if (stage.work.total() > slowest->work.total()) slowest = &stage;
  }
  return *slowest;
}

// Returns the estimate of the whole step. Its pipeline takes `pipeline`, with `slowest` as the
// slowest rank. Adds the times that follow the pipeline, and the memory of the rank that needs
// most.
StepEstimate StepModel::conclude(const ParallelPlan& plan, const ShapeCosts& costs,
                                 std::span<const Stage> stages, const Stage& slowest,
                                 Seconds pipeline) const noexcept {
  const std::int64_t m = plan.micro_batches(global_batch_);
  const PipelineShape shape{plan.schedule, plan.pp, plan.vp, m};
  StepEstimate estimate;
  estimate.breakdown = breakdown(slowest.work, pipeline, m);
  Seconds tail(-1);
  Bytes most(-1);
  for (const Stage& stage : stages) {
    const Finish f = finish(plan, stage);
    if (f.dp + f.optimizer > tail) {
      tail = f.dp + f.optimizer;
      estimate.breakdown.dp = f.dp;
      estimate.breakdown.optimizer = f.optimizer;
    }
    const MemoryBreakdown need =
        memory(plan, costs, stage.pieces, real(in_flight(shape, stage.rank)));
    if (stage.rank == 0) estimate.first_memory = need.total();
    if (need.total() > most) {
      most = need.total();
      estimate.memory = need;
      estimate.memory_rank = stage.rank;
    }
  }
  estimate.breakdown.dp += embedding_sync(plan);
  estimate.breakdown.overhead += straggling(estimate.breakdown.total());
  estimate.time = estimate.breakdown.total();
  return estimate;
}

// The first, a middle and the last rank stand for all: the ends carry embedding and head, the
// others are alike.
struct StepModel::Looks {
  std::array<RankPieces, 3> pieces;
  std::array<std::int64_t, 3> rank{};
  std::size_t count = 0;

  void add(const RankPieces& p, std::int64_t at) {
    pieces[count] = p;
    rank[count++] = at;
  }
};

StepModel::Looks StepModel::looked_at(const ParallelPlan& plan, const ShapeCosts& costs,
                                      const StageSplit& split) const noexcept {
  Looks looks;
  looks.add(pieces_of_rank(plan, costs, split, 0), 0);
  if (plan.pp > 2) {
    // The leading dense layers of an MoE make its first ranks fast. The first rank after them
    // stands for the middle.
    std::int64_t rank = 1;
    if (model_.is_moe() && model_.moe.first_dense_layers > split.first && split.middle > 0) {
      rank += (model_.moe.first_dense_layers - split.first + split.middle - 1) / split.middle;
    }
    rank = std::min(rank, plan.pp - 2);
    RankPieces middle = pieces_of_rank(plan, costs, split, rank);
    // With dense layers among the others, neighbouring ranks may hold different numbers of experts.
    // The rank with more stands for the middle.
    if (model_.is_moe() && model_.moe.layer_step > 1 && rank < plan.pp - 2) {
      const RankPieces next = pieces_of_rank(plan, costs, split, rank + 1);
      if (next.moe_layers > middle.moe_layers) {
        middle = next;
        ++rank;
      }
    }
    while (split.by_work && model_.is_moe() && middle.dense_layers > 0 && rank < plan.pp - 2)
      middle = pieces_of_rank(plan, costs, split, ++rank);
    looks.add(middle, rank);
  }
  if (plan.pp > 1) looks.add(pieces_of_rank(plan, costs, split, plan.pp - 1), plan.pp - 1);
  return looks;
}

Bytes StepModel::closed_form_memory(const ParallelPlan& plan, const ShapeCosts& costs,
                                    const StageSplit& split) const noexcept {
  const PipelineShape shape{plan.schedule, plan.pp, plan.vp, plan.micro_batches(global_batch_)};
  const Looks looks = looked_at(plan, costs, split);
  Bytes most;
  for (std::size_t i = 0; i < looks.count; ++i) {
    const double held = real(in_flight(shape, looks.rank[i]));
    most = max(most, memory(plan, costs, looks.pieces[i], held).total());
  }
  return most;
}

Seconds StepModel::least_time(const ParallelPlan& plan, const ShapeCosts& costs) const noexcept {
  const double moe_layers = real(model_.moe_layers());
  const Seconds work = piece_time(costs.time.embedding) + piece_time(costs.time.head) +
                       (real(model_.layers) - moe_layers) * piece_time(costs.time.dense) +
                       moe_layers * piece_time(costs.time.moe);
  return work * (real(global_batch_) / real(plan.micro_batch * plan.dp * plan.pp));
}

StepEstimate StepModel::closed_form(const ParallelPlan& plan, const ShapeCosts& costs,
                                    const StageSplit& split) const noexcept {
  const std::int64_t m = plan.micro_batches(global_batch_);
  const PipelineShape shape{plan.schedule, plan.pp, plan.vp, m};
  const Seconds hop = hop_time(plan, costs);
  std::array<Stage, 3> stages;
  const Looks looks = looked_at(plan, costs, split);
  const std::size_t count = looks.count;
  for (std::size_t i = 0; i < count; ++i)
    stages[i] = {looks.pieces[i], work(costs, looks.pieces[i]), looks.rank[i], Seconds()};

  auto chunk_times = [](const RankWork& w) {
    return ChunkTimes{w.forward(), w.backward_input(), w.backward_weight()};
  };
  double middle_mean = 1;
  if (plan.pp > 2 && !split.by_work) {
    auto layers = [](const RankPieces& p) { return p.dense_layers + p.moe_layers; };
    const double inner = real(model_.layers) - layers(stages[0].pieces) - layers(stages[2].pieces);
    middle_mean = inner / real(plan.pp - 2) / std::max(1.0, layers(stages[1].pieces));
  }
  const RankTimes times{chunk_times(stages[0].work), chunk_times(stages[count > 2 ? 1 : 0].work),
                        chunk_times(stages[count - 1].work), hop, middle_mean};
  const Seconds pipeline = pipeline_time(shape, times);

  const std::span<Stage> considered(stages.data(), count);
  const Stage& slowest = slowest_of(considered);
  const Seconds drain =
      (slowest.work.backward_input() + slowest.work.backward_weight()) / real(plan.vp) + hop;
  for (Stage& stage : considered) stage.slack = drain * real(stage.rank);
  return conclude(plan, costs, considered, slowest, pipeline);
}

StepTimeline StepModel::play(const ParallelPlan& plan, std::int64_t max_micro_batches) const {
  const ShapeCosts costs = shape_costs(plan);
  std::int64_t m = plan.micro_batches(global_batch_);
  if (max_micro_batches > 0) m = std::min(m, max_micro_batches);
  Result<Schedule> schedule = make_schedule(plan.schedule, plan.pp, plan.vp, m);
  COPUS_CHECK(schedule.has_value());  // the plan was validated
  StepTimeline step;
  step.schedule = std::move(schedule).value();
  step.times.hop = hop_time(plan, costs);
  for (std::int64_t c = 0; c < plan.pp * plan.vp; ++c) {
    const RankWork w = work(costs, pieces_of_chunk(plan, costs, c));
    step.times.chunks.push_back({w.forward(), w.backward_input(), w.backward_weight()});
  }
  step.timeline = run_timeline(step.schedule, step.times);
  return step;
}

StepEstimate StepModel::predict(const ParallelPlan& plan, std::int64_t max_actions) const {
  const ShapeCosts costs = shape_costs(plan);
  const std::int64_t m = plan.micro_batches(global_batch_);
  const std::int64_t actions_each = 3 * plan.pp * plan.vp;
  const std::int64_t cap =
      std::max<std::int64_t>(2, max_actions / actions_each / plan.pp) * plan.pp;

  StepTimeline step = play(plan, cap);
  Seconds pipeline = step.timeline.total;
  if (m > cap) {
    // Once the pipeline is full, each further micro-batch moves the end by one period.
    const Seconds shorter = play(plan, cap / 2 / plan.pp * plan.pp).timeline.total;
    const double period_count = real(cap - cap / 2 / plan.pp * plan.pp);
    pipeline += (step.timeline.total - shorter) * (real(m - cap) / period_count);
  }

  std::vector<Stage> stages;
  for (std::int64_t rank = 0; rank < plan.pp; ++rank) {
    const RankPieces pieces = pieces_of_rank(plan, costs, rank);
    const Seconds end = step.timeline.last_backward_end[static_cast<std::size_t>(rank)];
    stages.push_back({pieces, work(costs, pieces), rank, step.timeline.total - end});
  }
  return conclude(plan, costs, stages, slowest_of(stages), pipeline);
}

Seconds StepModel::straggling(Seconds step) const noexcept {
  return step * (options_.straggler * std::log2(real(cluster_.nodes)));
}

double StepModel::tokens_per_s_per_gpu(Seconds step) const {
  return real(global_batch_) * real(seq_len_) / step.v / real(cluster_.gpus());
}

double StepModel::mfu(Seconds step) const {
  const double flops = 3 * model_.forward_flops_per_token(seq_len_);
  return flops * tokens_per_s_per_gpu(step) / cluster_.gpu.peak(options_.precision).v;
}

}  // namespace copus
