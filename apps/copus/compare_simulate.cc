// copus compare --simulate: runs every policy in the same simulated world.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <random>
#include <thread>

#include "apps/copus/compare_world.h"

namespace copus {
namespace {

// The true step time of a layout is the predicted time multiplied by this factor, which the
// controller does not know. It is the same for all batches of the layout, and differs with the
// seed.
double step_factor(const Candidate& at, double spread, std::uint64_t seed) {
  if (spread == 0) return 1;
  const ParallelPlan& p = at.at.plan;
  std::seed_seq mixed{static_cast<std::int64_t>(seed),
                      p.tp,
                      p.cp,
                      p.pp,
                      p.dp,
                      p.ep,
                      p.vp,
                      static_cast<std::int64_t>(p.zero),
                      static_cast<std::int64_t>(p.sp)};
  std::mt19937_64 random(mixed);
  return std::exp(spread * std::normal_distribution<double>()(random));
}

// Runs every policy with every seed, on all cores.
Result<std::vector<std::vector<SimOutcome>>> simulate_all(const Simulation& sim,
                                                          const std::vector<Policy>& policies,
                                                          std::size_t seeds) {
  std::vector<std::vector<SimOutcome>> runs(policies.size(), std::vector<SimOutcome>(seeds));
  std::vector<std::optional<Error>> errors(policies.size() * seeds);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < errors.size(); i = next++) {
      const std::size_t p = i / seeds, s = i % seeds;
      Scenario scenario = sim.scenario;
      scenario.world.step_time = [&, seed = s + 1](const Candidate& at) {
        return sim.scenario.world.step_time(at) * step_factor(at, sim.step_error, seed);
      };
      Result<SimOutcome> run = simulate(scenario, policies[p], sim.losses, s + 1);
      if (run) {
        runs[p][s] = std::move(run).value();
      } else {
        errors[i] = run.error();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const std::optional<Error>& error : errors) {
    if (error) return *error;
  }
  return runs;
}

}  // namespace

Result<CompareReport> simulate_comparison(const CompareArgs& args, std::int64_t seeds) {
  COPUS_TRY(const Simulation sim, resolve_simulation(args));
  COPUS_TRY(const std::vector<Policy> policies,
            parse_policies(args.policies.value_or(default_policies()), sim.batches));
  COPUS_TRY(const auto runs, simulate_all(sim, policies, static_cast<std::size_t>(seeds)));
  CompareReport report;
  report.comparison = compare(policies, runs, sim.losses);
  report.title = fmt::format("{} on {}", sim.job.model.name, sim.job.cluster.name);
  report.assumed = sim.assumed;
  report.seeds = seeds;
  return report;
}

}  // namespace copus
