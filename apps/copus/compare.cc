// copus compare: policies side by side to the same loss.
#include "apps/copus/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <random>
#include <thread>

#include "apps/copus/config_file.h"
#include "copus/base/text.h"
#include "copus/goodput/pause.h"
#include "copus/sim/comparison_svg.h"

namespace copus {
namespace {

constexpr std::int64_t kStartBatch = 16;

Result<double> number(const std::string& text, const char* flag, double fallback, double low,
                      double high) {
  if (text.empty()) return fallback;
  return parse_number(text, flag, low, high);
}

Result<double> duration(const std::string& text, const char* flag, double fallback) {
  if (text.empty()) return fallback;
  return parse_duration(text, flag);
}

// Falling, and such as the curve reaches.
Result<std::vector<double>> resolve_losses(const std::vector<std::string>& texts,
                                           const LossCurve& curve) {
  std::vector<double> losses;
  for (const std::string& text : texts) {
    COPUS_TRY(const double loss, parse_number(text, "--losses", 0, 1e6));
    if (loss <= curve.floor || loss > curve.start_loss) {
      return make_error(
          "--losses: got {}; want above {:.3f}, where this model's curve ends, and at most {:.3f}, "
          "where it begins",
          text, curve.floor, curve.start_loss);
    }
    losses.push_back(loss);
  }
  if (losses.empty()) {
    // Evenly from a third of the way down to where a critical batch is some hundred samples.
    for (const double loss : {5.0, 4.5, 4.0, 3.5, 3.0}) {
      if (loss > curve.floor + 0.2 && loss < curve.start_loss) losses.push_back(loss);
    }
  }
  if (losses.empty())
    return make_error("--losses: missing; want losses between {:.3f} and {:.3f}", curve.floor,
                      curve.start_loss);
  std::sort(losses.begin(), losses.end(), std::greater<>());
  losses.erase(std::unique(losses.begin(), losses.end()), losses.end());
  return losses;
}

// A layout's step takes longer or shorter than predicted by a factor that the controller does not
// know: the same for all batches of the layout, another with another seed.
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

struct Simulation {
  Workload job;
  Scenario scenario;  // without step times: they depend on the seed
  std::vector<std::int64_t> batches;
  std::vector<double> losses;
  double step_error = 0;
  std::vector<std::string> assumed;
};

Result<void> resolve_world(const CompareArgs& args, Simulation& sim) {
  World& world = sim.scenario.world;
  world.curve = kaplan_curve(sim.job.model, sim.job.seq_len);
  sim.assumed.push_back(fmt::format(
      "loss and critical batch by Kaplan et al. 2020: from {:.2f}, with a floor of {:.2f}; "
      "critical batch {} at a loss of {}",
      world.curve.start_loss, world.curve.floor,
      human_count(world.curve.critical_batch(sim.losses.empty() ? 3 : sim.losses.back())),
      sim.losses.empty() ? 3 : sim.losses.back()));
  world.law.base_batch = static_cast<double>(sim.job.global_batch);
  if (args.law == "lr-aware") {
    world.law.lr_exponent = 0.5;
  } else if (!args.law.empty() && args.law != "critical-batch") {
    return make_error("--law: got {}; want critical-batch or lr-aware", shortened(args.law, 40));
  }
  sim.assumed.push_back(world.law.lr_exponent > 0
                            ? "progress of a step: 1/(1 + Bcrit/B) x sqrt(B/first batch), as "
                              "COPUS's LR-aware Goodput has it"
                            : "progress of a step: 1/(1 + Bcrit/B), the critical-batch law");
  const double believed = sim.scenario.controller.policy.calibration;
  COPUS_TRY(world.calibration,
            number(args.true_calibration, "--true-calibration", believed, 1e-3, 1e6));
  COPUS_TRY(world.noise_rank, number(args.noise_rank, "--noise-rank", world.noise_rank, 2, 1e12));
  COPUS_TRY(sim.step_error, number(args.step_error, "--step-error", 0, 0, 2));
  sim.assumed.push_back(
      fmt::format("critical batch / noise scale: {} in truth, {} believed; gradient noise of rank "
                  "{}; step times off by {:.0f}% from layout to layout, {:.0f}% from step to step",
                  world.calibration, believed, human_count(world.noise_rank), 100 * sim.step_error,
                  100 * world.step_jitter));
  const double fixed_pause_s = args.pause.empty() ? 0 : 1;
  COPUS_TRY(const double pause_s, duration(args.pause, "--pause", 0));
  world.pause_s = [model = sim.job.model, cluster = sim.job.cluster, fixed_pause_s, pause_s](
                      const Configuration& from, const Configuration& to) {
    if (fixed_pause_s > 0 && !same_placement(from.plan, to.plan)) return pause_s;
    return predict_pause_s(model, cluster, {}, from, to);
  };
  sim.assumed.push_back(
      args.pause.empty()
          ? std::string("a change of layout pauses as the reshard model predicts: bytes over links")
          : fmt::format("a change of layout pauses for {}", human_seconds(pause_s)));
  FailureOptions& f = world.failures;
  COPUS_TRY(f.between_s, duration(args.failures_every, "--failures-every", 0));
  COPUS_TRY(f.checkpoint_every_s, duration(args.save_every, "--save-every", f.checkpoint_every_s));
  COPUS_TRY(f.checkpoint_s, duration(args.save_cost, "--save-cost", f.checkpoint_s));
  COPUS_TRY(f.restart_s, duration(args.restart, "--restart", f.restart_s));
  if (f.between_s > 0) {
    sim.assumed.push_back(
        fmt::format("a failure every {} on average, {} to restart, a checkpoint every {} that "
                    "holds the run up for {}",
                    human_seconds(f.between_s), human_seconds(f.restart_s),
                    human_seconds(f.checkpoint_every_s), human_seconds(f.checkpoint_s)));
  }
  return {};
}

Result<Simulation> resolve_simulation(const CompareArgs& args) {
  Simulation sim;
  JobArgs job = args.job;
  if (job.model.empty())
    return make_error(
        "--model: missing; want a catalog name or a config.json, here or in --config");
  if (job.cluster.empty())
    return make_error(
        "--cluster: missing; want NODESxGPUSxGPU, a catalog name or a file, here or in --config");
  if (job.global_batch.empty()) job.global_batch = std::to_string(kStartBatch);
  COPUS_TRY(sim.job, load_job(job));
  Scenario& scenario = sim.scenario;
  scenario.start_batch = sim.job.global_batch;
  COPUS_TRY_VOID(resolve_policy(args.policy, scenario.controller));
  std::string range = args.policy.batch_range;
  if (range.empty()) range = fmt::format("{}:{}", scenario.start_batch, 64 * scenario.start_batch);
  COPUS_TRY(const BatchRange batches, resolve_batch_range(range, scenario.start_batch));
  sim.batches = batch_ladder(batches.lowest, batches.highest);
  sim.batches.push_back(scenario.start_batch);
  std::sort(sim.batches.begin(), sim.batches.end());
  sim.batches.erase(std::unique(sim.batches.begin(), sim.batches.end()), sim.batches.end());
  COPUS_TRY(sim.losses, resolve_losses(args.losses, kaplan_curve(sim.job.model, sim.job.seq_len)));
  COPUS_TRY_VOID(resolve_world(args, sim));

  CandidateRequest request;
  request.seq_len = sim.job.seq_len;
  request.batches = sim.batches;
  PartialPlan space;
  if (!args.policy.fix.empty()) {
    COPUS_TRY(space, load_partial_plan(args.policy.fix, "--fix"));
  }
  request.spaces = {space};
  scenario.candidates =
      enumerate_candidates(sim.job.model, sim.job.cluster, sim.job.options, request);
  if (scenario.candidates.empty() ||
      scenario.candidates.front().at.global_batch > scenario.start_batch) {
    return make_error(
        "--global-batch: got {}; want one that some layout of {} GPUs (and --fix) can train with "
        "in the memory there is",
        scenario.start_batch, sim.job.cluster.gpus());
  }
  // A batch that nothing fits is no rung.
  std::erase_if(sim.batches, [&](std::int64_t batch) {
    return std::none_of(scenario.candidates.begin(), scenario.candidates.end(),
                        [&](const Candidate& c) { return c.at.global_batch == batch; });
  });
  sim.assumed.push_back(fmt::format("{} configurations, batches {}", scenario.candidates.size(),
                                    fmt::join(sim.batches, ", ")));
  return sim;
}

// Every policy with every seed, on all cores.
Result<std::vector<std::vector<SimOutcome>>> simulate_all(const Simulation& sim,
                                                          const std::vector<Policy>& policies,
                                                          std::size_t seeds) {
  std::vector<std::vector<SimOutcome>> runs(policies.size(), std::vector<SimOutcome>(seeds));
  std::vector<std::string> errors(policies.size() * seeds);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < errors.size(); i = next++) {
      const std::size_t p = i / seeds, s = i % seeds;
      Scenario scenario = sim.scenario;
      scenario.world.step_s = [&, seed = s + 1](const Candidate& at) {
        return at.predicted.total().v * step_factor(at, sim.step_error, seed);
      };
      Result<SimOutcome> run = simulate(scenario, policies[p], sim.losses, s + 1);
      if (run) {
        runs[p][s] = std::move(run).value();
      } else {
        errors[i] = run.error().message;
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    if (!error.empty()) return Error{error};
  }
  return runs;
}

Result<int> run(CLI::App& command, CompareArgs& args, const std::vector<std::string>& argv) {
  (void)argv;
  std::vector<std::string> unused;
  if (!args.config.empty()) COPUS_TRY_VOID(apply_config(command, args.config, &unused));
  std::int64_t seeds = 5;
  if (!args.seeds.empty()) {
    COPUS_TRY(seeds, parse_integer(args.seeds, "--seeds", 1, 1000));
  }
  if (!args.simulate)
    return make_error("--simulate: missing; want it: live comparisons are not there yet");
  COPUS_TRY(const Simulation sim, resolve_simulation(args));
  COPUS_TRY(
      const std::vector<Policy> policies,
      parse_policies(args.policies.empty() ? default_policies() : args.policies, sim.batches));
  COPUS_TRY(const auto runs, simulate_all(sim, policies, static_cast<std::size_t>(seeds)));
  CompareReport report;
  report.comparison = compare(policies, runs, sim.losses);
  report.title = fmt::format("{} on {}", sim.job.model.name, sim.job.cluster.name);
  report.assumed = sim.assumed;
  report.seeds = seeds;
  if (!unused.empty()) {
    report.assumed.push_back(fmt::format("not used in a simulation: {}", fmt::join(unused, ", ")));
  }
  if (!args.plot.empty()) {
    COPUS_TRY_VOID(write_file(args.plot, comparison_svg(report.comparison, report.title)));
  }
  if (args.job.json) {
    fmt::print("{}\n", compare_json(report).dump(2));
  } else if (args.plot != "-") {
    fmt::print("{}", compare_text(report));
  }
  return kOk;
}

}  // namespace

void add_compare_command(CLI::App& app, int& exit_code, const std::vector<std::string>& argv) {
  auto args = std::make_shared<CompareArgs>();
  CompareArgs& a = *args;
  CLI::App* command =
      app.add_subcommand("compare", "Policies side by side, to the same loss, live or simulated");
  const auto text = [&](const char* flag, std::string& value, const char* help) {
    return command->add_option(flag, value, help)->check(not_empty());
  };
  text("--config", a.config,
       "a run's TOML file; its table [compare] holds this command's own options");
  command->add_flag("--simulate", a.simulate,
                    "in virtual time, by the cost model: no GPU is needed");
  command
      ->add_option(
          "--policies", a.policies,
          "static, static:BATCH, cbs-pessimistic, cbs-optimistic, copus, copus-plain, "
          "copus-lr-aware, copus-batch, "
          "copus-free-switch, oracle (default: the paper's, copus both ways, and the oracle)")
      ->delimiter(',')
      ->check(not_empty());
  command->add_option("--losses", a.losses, "losses to reach, in nats (default: 5, 4.5, 4, 3.5, 3)")
      ->delimiter(',')
      ->check(not_empty());
  text("--seeds", a.seeds, "runs of each policy (default: 5)");
  text("--plot", a.plot, "loss, batch and layout over time, as SVG");
  add_job_options(*command, a.job, /*required=*/false);
  add_policy_options(*command, a.policy);
  const auto world = [&](const char* flag, std::string& value, const char* help) {
    return text(flag, value, help)->group("The simulated world");
  };
  world("--law", a.law,
        "how a step's progress depends on its batch: critical-batch or lr-aware (default: "
        "critical-batch)");
  world("--step-error", a.step_error,
        "spread of true step times about the predicted, from layout to layout (default: 0)");
  world("--true-calibration", a.true_calibration,
        "critical batch / noise scale in truth (default: --calibration)");
  world("--noise-rank", a.noise_rank,
        "directions of the gradient's noise; fewer scatter its norms more (default: 100)");
  world("--pause", a.pause, "what every change of layout takes (default: as predicted)");
  world("--failures-every", a.failures_every, "mean time between failures (default: none)");
  world("--save-every", a.save_every, "time between checkpoints (default: 30m)");
  world("--save-cost", a.save_cost, "time that a checkpoint holds the run up (default: none)");
  world("--restart", a.restart, "time from a failure to the next step (default: 5m)");
  command->footer(
      "Example: copus compare --simulate --model llama-3.2-3b --cluster 1x8xH100-80GB-SXM "
      "--seq-len 2048");
  command->callback([command, args, argv, &exit_code] {
    const Result<int> code = run(*command, *args, argv);
    exit_code = code ? *code : report(code.error());
  });
}

}  // namespace copus
