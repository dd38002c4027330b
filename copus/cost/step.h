// StepModel: predicts one training step from compute, collectives, memory and the pipeline.
//
// closed_form() is for the search (no allocation, well under a microsecond); predict() plays the
// schedule action by action. On equal stages both give the same time (step_test.cc allows 0.1%).
//
// Thread-safe once built: all methods are const. It keeps references to the specs that it was built
// from.
#pragma once

#include <cstdint>
#include <span>

#include "copus/cost/breakdown.h"
#include "copus/cost/collectives.h"
#include "copus/cost/compute.h"
#include "copus/cost/memory.h"
#include "copus/cost/options.h"
#include "copus/cost/pipeline.h"
#include "copus/cost/timeline.h"
#include "copus/cost/work_cut.h"
#include "copus/spec/stage_split.h"

namespace copus {

struct StepEstimate {
  Seconds time;
  StepBreakdown breakdown;
  MemoryBreakdown memory;        // of the rank that needs most
  std::int64_t memory_rank = 0;  // its pipeline rank
  Bytes first_memory;            // of pipeline rank 0, which many logs show
};

// Costs that depend only on tp, cp, ep, etp, micro_batch, sp and recompute. The search computes
// them once for all plans that share these.
struct ShapeCosts {
  LayerCosts time;
  ActivationBytes activations;
  Bytes message;  // activation that one rank passes to the next stage
};

// A played step. The trace and the traffic pattern are made from it.
struct StepTimeline {
  Schedule schedule;
  PipelineTimes times;
  Timeline timeline;
};

class StepModel {
 public:
  // REQUIRES: the specs are valid and the GPU has the precision (check_precision).
  // `limits`: of the framework that the plans are for; null: none.
  StepModel(const ModelSpec& model, const ClusterSpec& cluster, std::int64_t seq_len,
            std::int64_t global_batch, const CostOptions& options,
            const EngineLimits* limits = nullptr);

  LayerShape layer_shape(const ParallelPlan& plan) const noexcept;
  ShapeCosts shape_costs(const ParallelPlan& plan) const noexcept;

  // Returns the split over pp*vp chunks that balances the pipeline under these costs.
  StageSplit balanced(const ParallelPlan& plan, const ShapeCosts& costs) const noexcept;

  // Returns the split over `chunks` that the engine makes if a plan has none.
  StageSplit unsplit(std::int64_t chunks) const noexcept;

  // Checks that the engine can run the plan; the error names the field, its value and what would be
  // right.
  Result<void> validate(const ParallelPlan& plan) const;

  // REQUIRES: the plan is valid except for stage_layers, which `split` (over pp*vp chunks)
  // replaces.
  StepEstimate closed_form(const ParallelPlan& plan, const ShapeCosts& costs,
                           const StageSplit& split) const noexcept;

  // Returns closed_form().memory.total(), in far less time.
  Bytes closed_form_memory(const ParallelPlan& plan, const ShapeCosts& costs,
                           const StageSplit& split) const noexcept;

  // Returns a lower bound of closed_form().time for all plans that share `costs`, whatever their
  // pp, dp, vp, split and zero: all work of a step, divided evenly over the ranks. REQUIRES: the
  // schedule is 1F1B or interleaved.
  Seconds least_time(const ParallelPlan& plan, const ShapeCosts& costs) const noexcept;

  // A timeline of more actions is not played to its end. The steady state repeats, so predict()
  // extends it by the difference of two shorter timelines.
  static constexpr std::int64_t kMaxActions = 150'000;

  // REQUIRES: validate() passed, except that stages may be without a layer.
  StepEstimate predict(const ParallelPlan& plan, std::int64_t max_actions = kMaxActions) const;

  // Plays the plan's schedule for at most `max_micro_batches` (0: all).
  StepTimeline play(const ParallelPlan& plan, std::int64_t max_micro_batches = 0) const;

  // Time from the end of a pass to its message's arrival at the next stage.
  Seconds message_time(const ParallelPlan& plan, const ShapeCosts& costs) const noexcept;

  double tokens_per_s_per_gpu(Seconds step) const;
  // Model FLOPs utilisation: 3x the forward operations (recompute does not count) over the dense
  // peak, never the sparse one.
  double mfu(Seconds step) const;
  Bytes capacity() const { return cluster_.gpu.memory; }
  // The part of capacity() that a search may fill.
  Bytes budget() const { return capacity() * (1 - options_.memory_margin); }

  const ModelSpec& model() const { return model_; }
  const ClusterSpec& cluster() const { return cluster_; }
  const CostOptions& options() const { return options_; }
  const EngineLimits* limits() const { return limits_; }
  const CollectiveModel& collectives() const { return collectives_; }
  std::int64_t seq_len() const { return seq_len_; }
  std::int64_t global_batch() const { return global_batch_; }

  // The pieces of the model that a pipeline rank or a chunk holds, and its pipeline messages.
  struct RankPieces {
    double dense_layers = 0, moe_layers = 0;
    double messages = 0;  // chunks that exchange with a neighbour
    bool embedding = false, head = false;
    bool pending = false;   // the pipeline's messages go over the network
    double congestion = 0;  // of that network, as a share of the congestion at 64 nodes
    double neighbours = 0;  // number of neighbours of the pipeline's busiest rank
  };
  // Returns the number of parameters in these pieces on one GPU.
  RankParams params(const ParallelPlan& plan, const RankPieces& pieces) const noexcept;
  // Returns the pieces of pipeline rank `rank`.
  RankPieces pieces_of_rank(const ParallelPlan& plan, const ShapeCosts& costs,
                            std::int64_t rank) const;
  // Returns the pieces of model chunk `chunk`.
  RankPieces pieces_of_chunk(const ParallelPlan& plan, const ShapeCosts& costs,
                             std::int64_t chunk) const;

 private:
  struct RankWork;  // one micro-batch on one pipeline rank
  struct Stage;     // a pipeline rank that the estimate considers
  RankWork work(const ShapeCosts& costs, const RankPieces& pieces) const noexcept;
  RankPieces pieces_of_rank(const ParallelPlan& plan, const ShapeCosts& costs,
                            const StageSplit& split, std::int64_t rank) const noexcept;
  LayerShare layers_by_work(const ParallelPlan& plan, const ShapeCosts& costs,
                            std::int64_t chunk) const noexcept;
  double expert_share() const noexcept;
  Seconds mixed_layer_time(const ShapeCosts& costs) const noexcept;
  std::int64_t dense_among(std::int64_t first, std::int64_t count) const noexcept;
  struct Looks;  // the pipeline ranks that stand for all in the closed form
  Looks looked_at(const ParallelPlan& plan, const ShapeCosts& costs,
                  const StageSplit& split) const noexcept;
  static const Stage& slowest_of(std::span<const Stage> stages) noexcept;
  struct Finish;  // the times that follow the pipeline on one rank
  Finish finish(const ParallelPlan& plan, const Stage& stage) const noexcept;
  StepEstimate conclude(const ParallelPlan& plan, const ShapeCosts& costs,
                        std::span<const Stage> stages, const Stage& slowest,
                        Seconds pipeline) const noexcept;
  Seconds straggling(Seconds step) const noexcept;
  bool crosses_nodes(const ParallelPlan& plan) const noexcept;
  double message_congestion(const ParallelPlan& plan) const noexcept;
  // Returns the part of message_time() for which the next stage waits.
  Seconds hop_time(const ParallelPlan& plan, const ShapeCosts& costs) const noexcept;
  Seconds embedding_sync(const ParallelPlan& plan) const noexcept;
  MemoryBreakdown memory(const ParallelPlan& plan, const ShapeCosts& costs,
                         const RankPieces& pieces, double chunks_in_flight) const noexcept;
  Bytes run_ahead(const ParallelPlan& plan, const ShapeCosts& costs, const RankPieces& pieces,
                  double held, const MemoryBreakdown& need) const noexcept;
  StepBreakdown breakdown(const RankWork& rank, Seconds pipeline,
                          std::int64_t micro_batches) const noexcept;

  const ModelSpec& model_;
  const ClusterSpec& cluster_;
  CostOptions options_;
  const EngineLimits* limits_;
  std::int64_t seq_len_, global_batch_;
  ComputeModel compute_;
  CollectiveModel collectives_;
  BytesPerSec memory_rate_;
  double weight_bytes_, grad_bytes_;

  // Numbers of parameters: _split ones are divided by tp, _whole ones are not.
  double attention_split_ = 0, kv_split_ = 0, layer_whole_ = 0, mlp_split_ = 0, expert_split_ = 0,
         moe_dense_split_ = 0, moe_whole_ = 0, embedding_split_ = 0, embedding_whole_ = 0,
         head_split_ = 0, head_whole_ = 0;
};

}  // namespace copus
