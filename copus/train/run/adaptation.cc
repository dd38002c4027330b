#include "copus/train/run/adaptation.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "copus/goodput/pause.h"
#include "copus/train/comm/agree.h"
#include "copus/train/run/machine.h"

namespace copus {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

CandidateRequest candidates_for(const AdaptOptions& options, const TrainerOptions& trainer) {
  CandidateRequest request;
  request.seq_len = trainer.seq_len;
  // The run's first batch may lie between two batches of the ladder.
  if (options.on()) request.batches = batch_ladder(options.lowest_batch, options.highest_batch);
  request.batches.push_back(trainer.global_batch);
  std::sort(request.batches.begin(), request.batches.end());
  request.batches.erase(std::unique(request.batches.begin(), request.batches.end()),
                        request.batches.end());
  request.spaces = options.spaces;
  if (!options.choose_plan) request.keep.push_back(trainer.plan);
  request.runnable = [trainer, measured = options.on()](const ParallelPlan& plan,
                                                        std::int64_t global_batch) {
    TrainerOptions there = trainer;
    there.plan = plan;
    there.global_batch = global_batch;
    // A move holds the old and the new layout at the same time.
    const Bytes both = 2 * largest_host_memory(there) * trainer.ranks_per_node;
    return check_trainable(there).has_value() &&
           (!measured || noise_prefix(plan, global_batch) > 0) && both < host_memory();
  };
  return request;
}

}  // namespace

Result<Adaptation> prepare_adaptation(const AdaptOptions& options, GroupCache& groups,
                                      TrainerOptions& trainer) {
  COPUS_TRY(const Comm* world, groups.world());

  Adaptation adaptation;
  if (options.cluster) {
    adaptation.cluster = *options.cluster;
  } else {
    COPUS_TRY(adaptation.cluster, this_cluster(*world, trainer));
  }
  if (adaptation.cluster.gpu.name == kMeasuredRank) {
    // A layer of the model and reductions between such ranks were measured. The time that a
    // pipeline stage needs to wake up was not, so that prediction is the least exact.
    adaptation.times.compute_sd = 0.1;
    adaptation.times.tp_sd = adaptation.times.dp_sd = 0.3;
    adaptation.times.pipeline_sd = 1.0;
  }
  const CostOptions cost = engine_cost_options(trainer.device.is_cpu(), trainer.precision());
  // Rank 0 decides, so only rank 0 needs the candidates.
  if (world->rank() == 0) {
    adaptation.candidates = enumerate_candidates(trainer.model, adaptation.cluster, cost,
                                                 candidates_for(options, trainer));
  }
  Bytes largest;
  for (const Candidate& candidate : adaptation.candidates) {
    LayoutOptions there = trainer;
    there.plan = candidate.at.plan;
    largest = max(largest, largest_host_memory(there));
  }
  adaptation.largest =
      Bytes(std::stod(from_rank_0(*world, trainer.device, fmt::format("{}", largest.v))));
  if (options.choose_plan) {
    // The candidates are sorted by batch, then by predicted time: the first match is the fastest.
    const auto best =
        std::find_if(adaptation.candidates.begin(), adaptation.candidates.end(),
                     [&](const Candidate& c) { return c.at.global_batch == trainer.global_batch; });
    const std::string chosen =
        from_rank_0(*world, trainer.device,
                    best == adaptation.candidates.end() ? "" : short_name(best->at.plan));
    if (chosen.empty()) {
      return field_error(
          "--global-batch",
          "got {}; want a batch that some layout of {} ranks, within --fix, can train in the "
          "available memory{}",
          trainer.global_batch, world->size(),
          options.on() ? ", with 2 micro-batches or 2 replicas for the noise scale" : "");
    }
    COPUS_TRY(const PartialPlan plan, parse_plan_text(chosen, "rank 0's plan"));
    trainer.plan = plan.plan;
  }
  adaptation.start = predict_candidate(trainer.model, adaptation.cluster, cost, trainer.seq_len,
                                       {trainer.plan, trainer.global_batch});
  return adaptation;
}

Controller make_controller(const AdaptOptions& options, const TrainerOptions& trainer,
                           const std::optional<Adaptation>& adaptation) {
  ControllerOptions controller = options.controller;
  if (!adaptation) {
    // Without predictions, the step time of the start may have any unit.
    Candidate start{{trainer.plan, trainer.global_batch}, {}};
    start.predicted.compute = Seconds(1);
    return {controller, start, {}, nullptr};
  }
  controller.times = adaptation->times;
  const ClusterSpec& cluster = adaptation->cluster;
  controller.machine =
      fmt::format("{}x{}x{}", cluster.nodes, cluster.gpus_per_node, cluster.gpu.name);
  // All CPUs have the same name, so the host's name tells them apart.
  if (cluster.gpu.name == kMeasuredRank) controller.machine += " of " + host_name();
  const StateBytes state = trainer.compute == Compute::kBf16 ? StateBytes{2, 12} : StateBytes{4, 8};
  return {controller, adaptation->start, adaptation->candidates,
          [model = trainer.model, cluster = adaptation->cluster, state](const Configuration& from,
                                                                        const Configuration& to) {
            return predict_pause(model, cluster, state, from, to);
          }};
}

}  // namespace copus
