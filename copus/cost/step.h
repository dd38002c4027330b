// StepModel: one training step predicted, from compute, collectives, memory and the pipeline.
//
// Two ways to the same number: closed_form() for the search (no allocation, well under a
// microsecond) and predict(), which plays the schedule out. They agree on equal stages
// (step_test.cc holds them to 0.1%).
//
// Thread-safe once built: all methods are const. Keeps references to the specs that it was built
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

// What depends on (tp, cp, ep, micro_batch, sp, recompute) alone, computed once for all plans that
// share them.
struct ShapeCosts {
  LayerCosts time;
  ActivationBytes activations;
  Bytes message;  // activation that one rank passes to the next stage
};

// A played-out step: what the trace draws and the traffic pattern is read from.
struct StepTimeline {
  Schedule schedule;
  PipelineTimes times;
  Timeline timeline;
};

class StepModel {
 public:
  // REQUIRES: the specs are valid and the GPU has the precision (check_precision).
  StepModel(const ModelSpec& model, const ClusterSpec& cluster, std::int64_t seq_len,
            std::int64_t global_batch, const CostOptions& options);

  ShapeCosts shape_costs(const ParallelPlan& plan) const noexcept;

  // The split over pp*vp chunks that balances the pipeline under these costs.
  StageSplit balanced(const ParallelPlan& plan, const ShapeCosts& costs) const noexcept;

  // The split over `chunks` that the engine makes where a plan has none.
  StageSplit unsplit(std::int64_t chunks) const noexcept;

  // Whether the engine can run the plan; the error names the field, its value and what would be
  // right.
  Result<void> validate(const ParallelPlan& plan) const;

  // REQUIRES: the plan is valid but for stage_layers, which `split` (over pp*vp chunks) replaces.
  StepEstimate closed_form(const ParallelPlan& plan, const ShapeCosts& costs,
                           const StageSplit& split) const noexcept;

  // Beyond so many actions a timeline is not played to its end: the steady state repeats, so two
  // shorter runs tell the rest.
  static constexpr std::int64_t kMaxActions = 150'000;

  // REQUIRES: validate() passed, but for stages without a layer.
  StepEstimate predict(const ParallelPlan& plan, std::int64_t max_actions = kMaxActions) const;

  // At most `max_micro_batches` are played (0: all).
  StepTimeline play(const ParallelPlan& plan, std::int64_t max_micro_batches = 0) const;

  // From the end of a pass to its message's arrival at the next stage.
  Seconds message_time(const ParallelPlan& plan, const ShapeCosts& costs) const noexcept;

  double tokens_per_s_per_gpu(Seconds step) const;
  // Model FLOPs utilisation: 3x the forward operations without recompute, over dense peak (the
  // sparse peak is never used).
  double mfu(Seconds step) const;
  Bytes capacity() const { return cluster_.gpu.memory; }
  // What a search may fill of it.
  Bytes budget() const { return capacity() * (1 - options_.memory_margin); }

  const ModelSpec& model() const { return model_; }
  const ClusterSpec& cluster() const { return cluster_; }
  const CostOptions& options() const { return options_; }
  const CollectiveModel& collectives() const { return collectives_; }
  std::int64_t seq_len() const { return seq_len_; }
  std::int64_t global_batch() const { return global_batch_; }

  // Bytes of one gradient buffer and parameters on a pipeline rank, for the traffic matrix.
  struct RankPieces {
    double dense_layers = 0, moe_layers = 0;
    double messages = 0;  // chunks that exchange with a neighbour
    bool embedding = false, head = false;
    bool pending = false;   // its pipeline messages go over the network
    double congestion = 0;  // what they meet there, of what a job on 64 nodes does
    double neighbours = 0;  // that the pipeline's busiest rank exchanges them with
  };
  RankParams params(const ParallelPlan& plan, const RankPieces& pieces) const noexcept;
  // What pipeline rank `rank` holds.
  RankPieces pieces_of_rank(const ParallelPlan& plan, const ShapeCosts& costs,
                            std::int64_t rank) const;
  // What model chunk `chunk` is.
  RankPieces pieces_of_chunk(const ParallelPlan& plan, const ShapeCosts& costs,
                             std::int64_t chunk) const;

 private:
  struct RankWork;  // one micro-batch on one pipeline rank
  struct Stage;     // a pipeline rank that is looked at
  RankWork work(const ShapeCosts& costs, const RankPieces& pieces) const noexcept;
  RankPieces pieces_of_rank(const ParallelPlan& plan, const ShapeCosts& costs,
                            const StageSplit& split, std::int64_t rank) const noexcept;
  LayerShare layers_by_work(const ParallelPlan& plan, const ShapeCosts& costs,
                            std::int64_t chunk) const noexcept;
  static const Stage& slowest_of(std::span<const Stage> stages) noexcept;
  struct Finish;  // what follows the pipeline on one rank
  Finish finish(const ParallelPlan& plan, const Stage& stage) const noexcept;
  StepEstimate conclude(const ParallelPlan& plan, const ShapeCosts& costs,
                        std::span<const Stage> stages, const Stage& slowest,
                        Seconds pipeline) const noexcept;
  Seconds straggling(Seconds step) const noexcept;
  bool crosses_nodes(const ParallelPlan& plan) const noexcept;
  double message_congestion(const ParallelPlan& plan) const noexcept;
  // What of message_time() the next stage waits for.
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
  std::int64_t seq_len_, global_batch_;
  ComputeModel compute_;
  CollectiveModel collectives_;
  BytesPerSec memory_rate_;
  double weight_bytes_, grad_bytes_;

  // Parameters by how they are sharded: over tp, and not at all.
  double attention_split_ = 0, kv_split_ = 0, layer_whole_ = 0, mlp_split_ = 0, expert_split_ = 0,
         moe_dense_split_ = 0, moe_whole_ = 0, embedding_split_ = 0, embedding_whole_ = 0,
         head_split_ = 0, head_whole_ = 0;
};

}  // namespace copus
