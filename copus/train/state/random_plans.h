// For tests: random valid plans.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "copus/spec/parallel_plan.h"

namespace copus {

// A plan for `ranks` ranks that the model and the batch allow. It varies tp, pp, vp, dp, ZeRO-1,
// sequence parallelism, uneven stages, recompute and micro-batch.
inline ParallelPlan random_plan(std::mt19937& random, const ModelSpec& model, std::int64_t ranks,
                                std::int64_t seq_len, std::int64_t global_batch) {
  const auto below = [&](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
  };
  const auto divisor = [&](std::int64_t n) {
    std::int64_t d = 1 + below(n);
    while (n % d != 0) d = 1 + below(n);
    return d;
  };
  ClusterSpec cluster;
  cluster.nodes = 1;
  cluster.gpus_per_node = ranks;
  for (;;) {
    ParallelPlan plan;
    plan.tp = divisor(ranks);
    plan.pp = divisor(ranks / plan.tp);
    plan.dp = ranks / plan.tp / plan.pp;
    plan.micro_batch = std::int64_t{1} << below(3);
    plan.zero = static_cast<int>(below(2));
    plan.sp = plan.tp > 1 && below(2) == 1;
    plan.recompute = below(2) == 1 ? Recompute::kNone : Recompute::kFull;
    if (plan.pp > 1 && below(3) == 0) {
      plan.vp = 2 + below(2);
      plan.schedule = ScheduleKind::kInterleaved;
    }
    const std::int64_t chunks = plan.pp * plan.vp;
    if (chunks > 1 && (below(2) == 0 || model.layers % chunks != 0)) {
      std::int64_t left = model.layers;
      for (std::int64_t i = 0; i < chunks; ++i) {
        plan.stage_layers.push_back(i + 1 == chunks ? left : below(left + 1));
        left -= plan.stage_layers.back();
      }
    }
    if (plan.validate(model, cluster, seq_len, global_batch)) return plan;
  }
}

}  // namespace copus
