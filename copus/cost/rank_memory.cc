// Memory of one pipeline rank: its state, the activations of the micro-batches that it holds, and
// what the host's lead over the GPU adds.
#include <algorithm>

#include "copus/cost/step.h"

namespace copus {
MemoryBreakdown StepModel::memory(const ParallelPlan& plan, const ShapeCosts& costs,
                                  const RankPieces& pieces,
                                  double chunks_in_flight) const noexcept {
  const bool moe = model_.is_moe();
  const double layer = params(plan, {moe ? 0.0 : 1.0, moe ? 1.0 : 0.0, 0, false, false}).total();
  const double largest = std::max(layer, embedding_split_ / real(plan.tp));
  MemoryBreakdown m = state_memory(options_, plan, params(plan, pieces), largest);
  const double held = chunks_in_flight / real(plan.vp);  // whole-rank micro-batches
  m.activations = held * (pieces.dense_layers * costs.activations.dense +
                          pieces.moe_layers * costs.activations.moe) +
                  costs.activations.working;
  if (pieces.embedding) m.activations += held * costs.activations.embedding;
  if (pieces.head) {
    // GPipe keeps the logits of every micro-batch, ZB-H1 their gradients (a third of what the loss
    // held) until the weight part.
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

// What is gathered for layers that the host has issued and the GPU has not reached, over `need`. A
// rank that waits for pipeline messages is ahead only while the pipeline fills, when its
// activations are not all there yet. Nothing runs out of memory by it: the allocator waits.
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

}  // namespace copus
