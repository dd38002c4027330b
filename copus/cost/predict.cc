// StepModel::predict and play: the schedule played out action by action, stage by stage as they
// are.
#include <algorithm>
#include <vector>

#include "copus/cost/rank_work.h"
#include "copus/cost/step.h"

namespace copus {
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
    const std::int64_t dense =
        model_.is_moe()
            ? std::clamp<std::int64_t>(model_.moe.first_dense_layers - before, 0, layers)
            : layers;
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
    // The end of the last micro-batch moves by one period per micro-batch once the pipeline is
    // full.
    const Seconds shorter = play(plan, cap / 2 / plan.pp * plan.pp).timeline.total;
    const double period_count = real(cap - cap / 2 / plan.pp * plan.pp);
    pipeline += (step.timeline.total - shorter) * (real(m - cap) / period_count);
  }

  std::vector<RankPieces> pieces;
  std::vector<RankWork> works;
  std::size_t slowest = 0;
  for (std::int64_t r = 0; r < plan.pp; ++r) {
    pieces.push_back(pieces_of_rank(plan, costs, r));
    works.push_back(work(costs, pieces.back()));
    if (works.back().total() > works[slowest].total()) slowest = works.size() - 1;
  }

  StepEstimate estimate;
  estimate.breakdown = breakdown(works[slowest], pipeline, m);
  const PipelineShape shape{plan.schedule, plan.pp, plan.vp, m};
  Seconds tail(-1);
  Bytes most(-1);
  for (std::size_t r = 0; r < pieces.size(); ++r) {
    const Seconds slack = step.timeline.total - step.timeline.last_backward_end[r];
    const Finish f = finish(plan, pieces[r], works[r], slack, m);
    if (f.dp + f.optimizer > tail) {
      tail = f.dp + f.optimizer;
      estimate.breakdown.dp = f.dp;
      estimate.breakdown.optimizer = f.optimizer;
    }
    const auto rank = static_cast<std::int64_t>(r);
    const MemoryBreakdown need = memory(plan, costs, pieces[r], real(in_flight(shape, rank)));
    if (r == 0) estimate.first_memory = need.total();
    if (need.total() > most) {
      most = need.total();
      estimate.memory = need;
      estimate.memory_rank = rank;
    }
  }
  estimate.breakdown.dp += embedding_sync(plan);
  estimate.breakdown.overhead += straggling(estimate.breakdown.total());
  estimate.time = estimate.breakdown.total();
  return estimate;
}

}  // namespace copus
