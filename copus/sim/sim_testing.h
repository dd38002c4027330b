// Scenarios and helpers that the simulation's tests share: an invented machine with three layouts,
// and workloads of the catalog.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "copus/goodput/pause.h"
#include "copus/sim/policies.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"

namespace copus {

// The losses that tests follow short_curve() to.
inline const std::vector<double> kLosses = {5, 4, 3};

// Returns a curve that takes 8,000 steps at a batch of 128 to reach a loss of 3. The critical batch
// is 20 at a loss of 6, 136 at 4 and 535 at 3.
inline LossCurve short_curve() {
  LossCurve curve;
  curve.floor = 2;
  curve.scale = 1500;
  curve.exponent = 0.76;
  curve.start_loss = 8;
  curve.critical_scale = 1e5;
  curve.critical_exponent = 1 / 0.21;
  return curve;
}

// Returns a scenario with eight ranks and three layouts. Each layout is the fastest over a range of
// batches. The controller's beliefs are right, and nothing is random.
inline Scenario quiet_scenario(Seconds layout_pause = Seconds(20)) {
  Scenario scenario;
  struct Layout {
    int dp, pp;
    double per_sample, fixed;
  };
  for (std::int64_t batch = 16; batch <= 512; batch *= 2) {
    for (const Layout& at :
         {Layout{2, 4, 0.012, 0.3}, Layout{4, 2, 0.0075, 0.5}, Layout{8, 1, 0.0045, 1.0}}) {
      Candidate candidate;
      candidate.at.plan.dp = at.dp;
      candidate.at.plan.pp = at.pp;
      candidate.at.global_batch = batch;
      candidate.predicted.compute = Seconds(static_cast<double>(batch) * at.per_sample);
      candidate.predicted.pipeline = Seconds(at.fixed);
      scenario.candidates.push_back(candidate);
    }
  }
  const auto step_time = [](const Candidate& candidate) { return candidate.predicted.total(); };
  std::sort(scenario.candidates.begin(), scenario.candidates.end(),
            [&](const Candidate& a, const Candidate& b) {
              return std::pair(a.at.global_batch, step_time(a)) <
                     std::pair(b.at.global_batch, step_time(b));
            });
  scenario.start_batch = 16;
  scenario.controller.policy.kind = GoodputKind::kPlain;
  World& world = scenario.world;
  world.curve = short_curve();
  world.noise_rank = 1e12;
  world.step_jitter = 0;
  world.step_time = step_time;
  world.pause = [=](const Configuration&, const Configuration&) { return layout_pause; };
  return scenario;
}

// Returns a scenario like those of the evaluation: Kaplan's curves, and the cost model as the
// truth.
inline Scenario catalog_scenario(const std::string& model_name, const std::string& cluster_name,
                                 std::vector<std::int64_t> batches) {
  const ModelSpec model = load_model(model_name).value();
  const ClusterSpec cluster = load_cluster(cluster_name).value();
  CandidateRequest request;
  request.seq_len = 2048;
  request.batches = std::move(batches);
  request.spaces = {parse_plan_text("zero=0,cp=1,ep=1,vp=1,sp=0,recompute=none", "--fix").value()};
  Scenario scenario;
  scenario.candidates = enumerate_candidates(model, cluster, {}, request);
  scenario.start_batch = request.batches.front();
  scenario.controller.policy.kind = GoodputKind::kPlain;
  scenario.world.curve = kaplan_curve(model, request.seq_len);
  scenario.world.step_time = [](const Candidate& candidate) { return candidate.predicted.total(); };
  scenario.world.pause = [=](const Configuration& from, const Configuration& to) {
    return predict_pause(model, cluster, {}, from, to);
  };
  return scenario;
}

// Integrates `per_progress(critical batch)` over the progress up to a loss.
inline double integral_to(const LossCurve& curve, double loss,
                          const std::function<double(double)>& per_progress) {
  constexpr int kParts = 20000;
  const double first = std::log(curve.start_loss - curve.floor);
  const double last = std::log(loss - curve.floor);
  const auto loss_at = [&](double part) {
    return std::min(curve.start_loss, curve.floor + std::exp(first + part * (last - first)));
  };
  double sum = 0;
  for (int i = 0; i < kParts; ++i) {
    const double from = curve.progress_at(loss_at(static_cast<double>(i) / kParts));
    const double to = curve.progress_at(loss_at((i + 1.0) / kParts));
    sum += (to - from) * per_progress(curve.critical_batch(loss_at((i + 0.5) / kParts)));
  }
  return sum;
}

// Returns the number of steps to a loss at one batch if steps were infinitely small. A run uses the
// critical batch at the beginning of each step (Euler's method), so its number of steps differs by
// up to half the logarithm of the change in a step's progress.
inline double ideal_steps(const World& world, double batch, double loss) {
  return integral_to(world.curve, loss,
                     [&](double critical) { return 1 / world.law.step(batch, critical); });
}

inline std::vector<std::int64_t> batches_of(const Scenario& scenario) {
  std::vector<std::int64_t> batches;
  for (const Candidate& candidate : scenario.candidates) {
    const std::int64_t batch = candidate.at.global_batch;
    if (batches.empty() || batches.back() != batch) batches.push_back(batch);
  }
  return batches;
}

inline Policy policy_of(const Scenario& scenario, const std::string& name) {
  return parse_policies({name}, batches_of(scenario)).value().front();
}

inline SimOutcome run_of(const Scenario& scenario, const std::string& policy,
                         const std::vector<double>& losses, std::uint64_t seed = 1) {
  Result<SimOutcome> run = simulate(scenario, policy_of(scenario, policy), losses, seed);
  EXPECT_TRUE(run.has_value()) << (run ? "" : run.error().message);
  return run ? *run : SimOutcome();
}

}  // namespace copus
