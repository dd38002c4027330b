#include "copus/tuner/traffic_pattern.h"

#include <algorithm>
#include <cmath>

#include "copus/spec/rank_grid.h"
#include "copus/tuner/expert_flows.h"

namespace copus {
namespace {

// Limits the bursts of one GPU to a number that can still be drawn.
constexpr std::int64_t kMaxLayerPasses = 200'000;

// A burst inside one layer's slot of an action, with times as shares of the slot.
struct SlotBurst {
  Dimension dimension;
  double start, end;
  Bytes bytes;
};

// What an expert-parallel member sends with a dispatch and with a combine, as shares of its
// dispatch buffer.
struct ExpertShare {
  double dispatch = 0;
  double combine = 0;
};

ExpertShare expert_share(const StepModel& step, const ParallelPlan& plan, std::int64_t gpu,
                         double skew) {
  ExpertShare sum;
  if (!step.model().is_moe() || plan.ep <= 1) return sum;
  const std::vector<double> shares = expert_rank_shares(step.model().moe, plan.ep, skew);
  for (const ExpertFlow& flow : expert_flows(step, plan, shares, gpu)) {
    sum.dispatch += flow.dispatch;
    sum.combine += flow.combine;
  }
  return sum;
}

PieceCost chunk_cost(const StepModel::RankPieces& pieces, const LayerCosts& costs) {
  PieceCost sum;
  auto add = [&sum](double times, const PieceCost& piece) {
    sum.forward += times * piece.forward;
    sum.backward_input += times * piece.backward_input;
    sum.backward_weight += times * piece.backward_weight;
    sum.recompute += times * piece.recompute;
  };
  add(pieces.dense_layers, costs.dense);
  add(pieces.moe_layers, costs.moe);
  if (pieces.embedding) add(1, costs.embedding);
  if (pieces.head) add(1, costs.head);
  return sum;
}

// Appends the bursts of one pass to [from, to) of a slot. `time` and `cp_transfer` (which runs
// while attention computes) are the chunk's; `volume` is a layer's. Attention comes first in the
// forward pass and last in the backward pass.
void add_pass(std::vector<SlotBurst>& slot, double from, double to, const PieceTime& time,
              Seconds cp_transfer, const PassVolume& volume, ExpertShare experts, bool backward) {
  if (to <= from || time.total().v <= 0) return;
  const double middle = (from + to) / 2;
  const double tp = (to - from) * (time.tp / time.total()) / 2;
  const double ep = (to - from) * (time.ep / time.total()) / 2;
  const double attention = backward ? middle : from;
  const double mlp = backward ? from : middle;
  const double half = (to - from) / 2;
  const double cp = std::min(half - tp, (to - from) * (cp_transfer / time.total()));
  slot.push_back({Dimension::kCp, attention, attention + cp, volume.cp});
  slot.push_back({Dimension::kTp, attention + half - tp, attention + half, volume.tp / 2});
  // In the backward pass the gradient of the combine goes to the experts first, as in a dispatch.
  slot.push_back({Dimension::kEp, mlp, mlp + ep, volume.ep * experts.dispatch});
  slot.push_back(
      {Dimension::kEp, mlp + half - tp - ep, mlp + half - tp, volume.ep * experts.combine});
  slot.push_back({Dimension::kTp, mlp + half - tp, mlp + half, volume.tp / 2 + volume.etp});
}

// What a GPU sends in the passes of one chunk, distributed over one layer's slot.
struct ChunkSlots {
  std::int64_t layers = 1;  // at least one, for the embedding or head of a stage without layers
  std::vector<SlotBurst> forward, backward, backward_input;
};

ChunkSlots chunk_slots(const StepModel& step, const ParallelPlan& plan, const ShapeCosts& costs,
                       std::int64_t chunk, ExpertShare experts) {
  ChunkSlots slots;
  const StepModel::RankPieces pieces = step.pieces_of_chunk(plan, costs, chunk);
  // A cut layer is rounded to whole layers here.
  slots.layers = std::max<std::int64_t>(1, std::llround(pieces.dense_layers + pieces.moe_layers));
  const double layers = real(slots.layers);
  const ChunkVolume volume = chunk_volume(step, plan, costs, chunk);
  const PieceCost cost = chunk_cost(pieces, costs.time);
  const GroupPlace ring = place_group(plan.cp, plan.tp, step.cluster().gpus_per_node);
  const BytesPerSec cp_rate = step.collectives().rate(Collective::kAllGather, ring);
  auto add = [&](std::vector<SlotBurst>& slot, double from, double to, const PieceTime& time,
                 const PassVolume& v, bool backward) {
    const PassVolume layer{v.tp / layers, v.etp / layers, v.cp / layers, v.ep / layers};
    add_pass(slot, from, to, time, v.cp / cp_rate, layer, experts, backward);
  };
  auto lay_backward = [&](std::vector<SlotBurst>& slot, const PieceTime& gradients) {
    const Seconds total = cost.recompute.total() + gradients.total();
    const double repeated = total.v > 0 ? cost.recompute.total() / total : 0;
    add(slot, 0, repeated, cost.recompute, volume.recompute, false);
    add(slot, repeated, 1, gradients, volume.backward, true);
  };
  add(slots.forward, 0, 1, cost.forward, volume.forward, false);
  lay_backward(slots.backward, cost.backward_input + cost.backward_weight);
  lay_backward(slots.backward_input, cost.backward_input);
  return slots;
}

class PatternBuilder {
 public:
  explicit PatternBuilder(std::vector<Burst>& bursts) : bursts_(bursts) {}

  void burst(Seconds start, Seconds end, Dimension dimension, Bytes bytes) {
    if (bytes.v > 0) bursts_.push_back({start, end, dimension, bytes});
  }

  // Repeats `slot` for each layer of the action. If coarse: one burst per kind and action.
  void layers(const TimedAction& action, const std::vector<SlotBurst>& slot, std::int64_t count,
              bool coarse) {
    const std::int64_t slots = coarse ? 1 : count;
    const Seconds length = (action.end - action.start) / real(slots);
    for (std::int64_t i = 0; i < slots; ++i) {
      const Seconds origin = action.start + length * real(i);
      for (const SlotBurst& b : slot) {
        burst(origin + length * b.start, origin + length * b.end, b.dimension,
              b.bytes * (real(count) / real(slots)));
      }
    }
  }

 private:
  std::vector<Burst>& bursts_;
};

// Gradients and weights that one GPU exchanges with its replicas.
struct ReplicaTraffic {
  ReplicaVolume volume;
  Seconds reduce, gather;  // time of one transfer of all gradients, and of all weights
};

ReplicaTraffic replica_traffic(const StepModel& step, const ParallelPlan& plan,
                               const ShapeCosts& costs, std::int64_t stage) {
  const RankParams params = step.params(plan, step.pieces_of_rank(plan, costs, stage));
  const std::int64_t replicas = plan.dp * plan.cp;
  const std::int64_t per_node = step.cluster().gpus_per_node;
  const double weight_bytes = step.options().precision == Precision::kFp32 ? 4 : 2;
  ReplicaTraffic sum;
  auto add = [&](double count, std::int64_t ring, GroupPlace group) {
    const ReplicaVolume v = replica_volume(step, plan, count, ring);
    sum.volume.reduce += v.reduce;
    sum.volume.gather += v.gather;
    sum.volume.per_forward += v.per_forward;
    sum.volume.per_backward += v.per_backward;
    sum.reduce += step.collectives().time(
        plan.zero == 0 ? Collective::kAllReduce : Collective::kReduceScatter, group,
        Bytes(count * gradient_bytes(step.options())));
    sum.gather +=
        step.collectives().time(Collective::kAllGather, group, Bytes(count * weight_bytes));
  };
  add(params.dense, replicas, place_group(replicas, plan.tp, per_node));
  const std::int64_t expert_replicas = step.model().is_moe() ? plan.expert_dp() : 1;
  add(params.expert, expert_replicas,
      place_group(expert_replicas, plan.expert_tp() * plan.ep, per_node));
  return sum;
}

// The transfers that happen once per step: gradients, tied embedding, updated weights.
void add_finish(PatternBuilder& out, const StepModel& step, const ParallelPlan& plan,
                std::int64_t stage, const ReplicaTraffic& replicas, const TimedAction& last) {
  const bool overlap = overlaps_gradients(step.options(), plan.zero);
  Seconds now = last.end;
  if (replicas.volume.reduce.v > 0) {
    const Seconds start = overlap ? last.start : last.end;
    now = max(last.end, start + replicas.reduce);
    out.burst(start, now, Dimension::kDp, replicas.volume.reduce);
  }
  const Bytes tied = tied_embedding_volume(step, plan);
  if (tied.v > 0 && (stage == 0 || stage == plan.pp - 1)) {
    const GroupPlace ends = place_pipeline_ends(step.cluster().nodes);
    // In an all-reduce between two, each sends as many bytes as its buffer holds.
    const Seconds length = step.collectives().time(Collective::kAllReduce, ends, tied);
    out.burst(now, now + length, Dimension::kEmbedding, tied);
    now += length;
  }
  // If transfers overlap with computation, the weights are gathered from the start of the step.
  const Seconds start = overlap ? Seconds(0) : now;
  out.burst(start, start + replicas.gather, Dimension::kDp, replicas.volume.gather);
}

}  // namespace

Seconds TrafficPattern::on_time(Dimension dimension) const {
  Seconds on, covered;
  for (const Burst& b : bursts) {  // ordered by start
    if (b.dimension != dimension || b.end <= covered) continue;
    on += b.end - max(b.start, covered);
    covered = b.end;
  }
  return on;
}

TrafficPattern traffic_pattern(const StepModel& step, const ParallelPlan& plan, double skew,
                               std::int64_t gpu) {
  const Coordinates at = RankGrid(plan).coordinates_of(gpu);
  const ExpertShare experts = expert_share(step, plan, gpu, skew);
  const ShapeCosts costs = step.shape_costs(plan);
  const std::int64_t chunks = plan.pp * plan.vp;

  // The limit of micro-batches is a multiple of pp, because interleaved schedules need that.
  constexpr std::int64_t kMaxActions = 1'000'000;
  const std::int64_t cap =
      std::max<std::int64_t>(1, kMaxActions / (3 * chunks) / plan.pp) * plan.pp;
  const StepTimeline played = step.play(plan, cap);

  TrafficPattern pattern;
  pattern.gpu = gpu;
  pattern.micro_batches = played.schedule.micro_batches;
  pattern.actions = played.timeline.ranks[static_cast<std::size_t>(at.pp)];
  pattern.span = played.timeline.total;

  std::vector<ChunkSlots> slots;
  std::vector<Bytes> messages;
  for (std::int64_t c = 0; c < chunks; ++c) {
    slots.push_back(chunk_slots(step, plan, costs, c, experts));
    messages.push_back(chunk_volume(step, plan, costs, c).message);
  }
  const Seconds message_time = step.message_time(plan, costs);
  const ReplicaTraffic replicas = replica_traffic(step, plan, costs, at.pp);
  const Bytes forward_dp = replicas.volume.per_forward / real(plan.vp);
  const Bytes backward_dp = replicas.volume.per_backward / real(plan.vp);
  // Under ZeRO 2 and 3, transfers run during the pass that needs the weights or produces the
  // gradients.
  const Seconds forward_time = replicas.gather / real(plan.vp);
  const Seconds backward_time =
      (replicas.reduce + (plan.zero == 3 ? replicas.gather : Seconds(0))) / real(plan.vp);
  const bool coarse = real(pattern.micro_batches) * real(step.model().layers) >
                      real(kMaxLayerPasses) * real(plan.pp);

  PatternBuilder out(pattern.bursts);
  TimedAction last;  // the last action that produces gradients
  for (const TimedAction& action : pattern.actions) {
    const auto chunk = static_cast<std::size_t>(action.action.chunk);
    const ChunkSlots& s = slots[chunk];
    const bool has_next = plan.pp > 1 && chunk + 1 < slots.size();
    const bool has_previous = plan.pp > 1 && chunk > 0;
    const Seconds arrival = action.end + message_time;
    switch (action.action.kind) {
      case ActionKind::kForward:
        out.layers(action, s.forward, s.layers, coarse);
        out.burst(action.start, min(action.end, action.start + forward_time), Dimension::kDp,
                  forward_dp);
        if (has_next) out.burst(action.end, arrival, Dimension::kPp, messages[chunk]);
        break;
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        out.layers(action,
                   action.action.kind == ActionKind::kBackward ? s.backward : s.backward_input,
                   s.layers, coarse);
        out.burst(action.start, min(action.end, action.start + backward_time), Dimension::kDp,
                  backward_dp);
        if (has_previous) out.burst(action.end, arrival, Dimension::kPp, messages[chunk]);
        last = action;
        break;
      case ActionKind::kBackwardWeight:
        last = action;
        break;
    }
  }
  add_finish(out, step, plan, at.pp, replicas, last);

  std::stable_sort(pattern.bursts.begin(), pattern.bursts.end(),
                   [](const Burst& a, const Burst& b) { return a.start < b.start; });
  for (const Burst& b : pattern.bursts) pattern.span = max(pattern.span, b.end);
  return pattern;
}

}  // namespace copus
