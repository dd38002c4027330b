// Shared by the traffic tests: a job given by catalog names, with its StepModel and its traffic.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/tuner/traffic.h"

namespace copus {

struct TestJob {
  ModelSpec model;
  ClusterSpec cluster;
  ParallelPlan plan;
  std::unique_ptr<StepModel> step;

  TestJob(const std::string& model_name, const std::string& cluster_name, std::int64_t seq_len,
          std::int64_t global_batch, const std::string& plan_text, const CostOptions& options = {})
      : model(load_model(model_name).value()),
        cluster(load_cluster(cluster_name).value()),
        plan(parse_plan_text(plan_text, "--plan").value().plan),
        step(std::make_unique<StepModel>(model, cluster, seq_len, global_batch, options)) {}

  double micro_batches() const {
    return static_cast<double>(plan.micro_batches(step->global_batch()));
  }
  // Returns the bytes of a micro-batch's activations, b*s*h*2, before any split.
  double activation_bytes() const {
    return static_cast<double>(plan.micro_batch * step->seq_len() * model.hidden) * 2;
  }
  Traffic traffic(double skew = 0) const {
    Result<Traffic> result = compute_traffic(*step, plan, skew);
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
    return result ? std::move(result).value() : Traffic();
  }
};

// Returns the bytes that `gpu` sends in `dimension`.
inline double sent(const Traffic& traffic, std::int64_t gpu, Dimension dimension) {
  double sum = 0;
  for (const Flow& flow : traffic.flows) {
    if (flow.source == gpu && flow.dimension == dimension) sum += flow.bytes.v;
  }
  return sum;
}

}  // namespace copus
