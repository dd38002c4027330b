#include "apps/copus/compare_world.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "copus/base/text.h"
#include "copus/cost/framework.h"
#include "copus/events/event_log.h"
#include "copus/goodput/pause.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

// Returns the losses in falling order, or usual ones if there are none. An error if the curve does
// not reach one of them.
Result<std::vector<double>> resolve_losses(std::vector<double> losses, const LossCurve& curve) {
  for (const double loss : losses) {
    if (loss <= curve.floor || loss >= curve.start_loss) {
      return field_error(
          "--losses",
          "got {}; want above {:.3f}, where this model's curve ends, and below {:.3f}, "
          "where it begins",
          loss, curve.floor, curve.start_loss);
    }
  }
  if (losses.empty()) {
    // At these losses the critical batches are tens to hundreds of sequences of 2048 tokens.
    for (const double loss : {5.0, 4.5, 4.0, 3.5, 3.0}) {
      if (loss > curve.floor + 0.2 && loss < curve.start_loss) losses.push_back(loss);
    }
  }
  if (losses.empty())
    return field_error("--losses", "missing; want losses between {:.3f} and {:.3f}", curve.floor,
                       curve.start_loss);
  std::sort(losses.begin(), losses.end(), std::greater<>());
  losses.erase(std::unique(losses.begin(), losses.end()), losses.end());
  return losses;
}

Result<std::vector<RecordedRun>> read_runs(const CompareArgs& args) {
  std::vector<RecordedRun> runs;
  for (const std::string& folder : args.world.from.value_or({})) {
    runs.emplace_back(std::vector<double>{}, *args.window);
    COPUS_TRY_VOID(runs.back().read(events_path(folder)));
  }
  return runs;
}

// Loads the job of the recorded runs. Its cluster is --cluster, or else the one that a run
// measured. Its cost options are those of Copus's own engine.
Result<Workload> load_recorded_job(const JobArgs& args, const std::vector<RecordedRun>& runs) {
  const auto known = std::find_if(runs.begin(), runs.end(), [](const RecordedRun& run) {
    return run.start() && run.start()->cluster;
  });
  std::optional<ClusterSpec> cluster;
  if (!args.cluster.known()) {
    if (known == runs.end()) {
      return field_error(
          "--cluster",
          "missing, and no run of --from has measured its cluster; want --cluster, or a run with "
          "--plan best or --adapt");
    }
    cluster = known->start()->cluster;
  }
  const std::optional<StartEvent>& start =
      known == runs.end() ? runs.front().start() : known->start();
  const bool on_cpus = start && start->device == DeviceKind::kCpu;
  const Precision precision = start ? start->precision : Precision::kBf16;
  if (args.framework.known()) {
    return field_error("--framework",
                       "got {} with --from; want none, because Copus's engine made its runs",
                       shortened(*args.framework, 40));
  }
  if (args.precision.value_or(precision) != precision) {
    return field_error("--precision",
                       "got {}; want {}, as in the runs of --from, or no --precision",
                       to_string(*args.precision), to_string(precision));
  }
  COPUS_TRY(Workload job, load_job(args, cluster));
  const CostOptions engine = engine_cost_options(on_cpus, precision);
  COPUS_TRY(job.options, apply_assumptions(engine, args.assume.value_or("")));
  return job;
}

Result<void> resolve_job(const CompareArgs& args, const std::vector<RecordedRun>& runs,
                         Simulation& sim) {
  const JobArgs& job = args.job;
  if (!job.model.known()) {
    return field_error("--model",
                       "missing; want a catalog name or a config.json, here or in --config");
  }
  if (!runs.empty()) {
    COPUS_TRY(sim.job, load_recorded_job(job, runs));
  } else if (!job.cluster.known()) {
    return field_error(
        "--cluster", "missing; want NODESxGPUSxGPU, a catalog name or a file, here or in --config");
  } else {
    COPUS_TRY(sim.job, load_job(job));
  }
  if (sim.job.options.stage_cut == StageCut::kWork) {
    return field_error("stage_cut",
                       "got work; want layers (--assume stage_cut=layers), because the cost of a "
                       "move is counted in whole layers");
  }
  return {};
}

Result<void> resolve_candidates(const CompareArgs& args, Simulation& sim) {
  Scenario& scenario = sim.scenario;
  scenario.start_batch = sim.job.global_batch;
  COPUS_TRY(const BatchRange batches, resolve_batches(args.policy.decisions, scenario.start_batch));
  sim.batches = batch_ladder(batches.lowest, batches.highest);
  sim.batches.push_back(scenario.start_batch);
  std::sort(sim.batches.begin(), sim.batches.end());
  sim.batches.erase(std::unique(sim.batches.begin(), sim.batches.end()), sim.batches.end());

  CandidateRequest request;
  request.seq_len = sim.job.seq_len;
  request.batches = sim.batches;
  PartialPlan space;
  if (args.policy.fix.known()) {
    COPUS_TRY(space, load_partial_plan(*args.policy.fix, "--fix"));
  }
  request.spaces = {space};
  scenario.candidates =
      enumerate_candidates(sim.job.model, sim.job.cluster, sim.job.options, request);
  // Removes batches for which no configuration fits.
  std::erase_if(sim.batches, [&](std::int64_t batch) {
    return std::none_of(scenario.candidates.begin(), scenario.candidates.end(),
                        [&](const Candidate& c) { return c.at.global_batch == batch; });
  });
  if (std::find(sim.batches.begin(), sim.batches.end(), scenario.start_batch) ==
      sim.batches.end()) {
    return field_error("--global-batch",
                       "got {}; want a batch that some layout of {} GPUs, within --fix, can train "
                       "in their memory",
                       scenario.start_batch, sim.job.cluster.gpus());
  }
  sim.assume("{} configurations, batches {}", scenario.candidates.size(),
             fmt::join(sim.batches, ", "));
  return {};
}

Result<void> resolve_published_world(const CompareArgs& args, Simulation& sim) {
  World& world = sim.scenario.world;
  world.curve = kaplan_curve(sim.job.model, sim.job.seq_len);
  world.law.base_batch = static_cast<double>(sim.job.global_batch);
  if (*args.world.law == LawKind::kLrAware) world.law.lr_exponent = 0.5;
  const double believed = sim.scenario.controller.policy.calibration;
  world.calibration = args.world.true_calibration.value_or(believed);
  sim.step_error = *args.world.step_error;
  COPUS_TRY(sim.losses, resolve_losses(args.losses.value_or({}), world.curve));
  sim.assume(
      "loss and critical batch by Kaplan et al. 2020: from {:.2f}, with a floor of {:.2f}; "
      "critical batch {} at a loss of {:g}",
      world.curve.start_loss, world.curve.floor,
      human_count(world.curve.critical_batch(sim.losses.back())), sim.losses.back());
  sim.assume("progress of a step: {}",
             world.law.lr_exponent > 0
                 ? "1/(1 + Bcrit/B) x sqrt(B/first batch), as COPUS's LR-aware Goodput has it"
                 : "1/(1 + Bcrit/B), the critical-batch law");
  world.step_time = [](const Candidate& at) { return at.predicted.total(); };
  return {};
}

Result<void> resolve_recorded_world(const CompareArgs& args, const std::vector<RecordedRun>& runs,
                                    Simulation& sim) {
  for (const AnyOption* option : std::initializer_list<const AnyOption*>{
           &args.world.law, &args.world.true_calibration, &args.world.step_error}) {
    if (!option->given()) continue;
    return field_error(option->flag(),
                       "got {} with --from; want only one of them: --from sets it already",
                       spelled(option->value()).front());
  }
  COPUS_TRY(RecordedWorld recorded, recorded_world(runs, sim.scenario.candidates,
                                                   sim.scenario.controller.policy.calibration));
  sim.scenario.world = std::move(recorded.world);
  // Policies that fix a layout choose the one that was fastest in the recorded runs.
  std::stable_sort(sim.scenario.candidates.begin(), sim.scenario.candidates.end(),
                   [&](const Candidate& a, const Candidate& b) {
                     if (a.at.global_batch != b.at.global_batch)
                       return a.at.global_batch < b.at.global_batch;
                     return sim.scenario.world.step_time(a) < sim.scenario.world.step_time(b);
                   });
  const LossCurve& curve = sim.scenario.world.curve;
  COPUS_TRY(sim.losses, resolve_losses(args.losses.value_or({}), curve));
  sim.assume(
      "as {} recorded run{} show: loss from {:.2f} to {:.2f}, the runs' progress to a loss differs "
      "by {:.0f}%; "
      "progress of a step 1/(1 + (Bcrit/B)^{:.2f})^(1/{:.2f}), critical batch {} at a loss of "
      "{:g}; "
      "step times of {} configurations",
      runs.size(), runs.size() == 1 ? "" : "s", curve.start_loss, curve.knots.back().loss,
      100 * recorded.fitted.spread, recorded.fitted.law.sharpness, recorded.fitted.law.sharpness,
      human_count(curve.critical_batch(sim.losses.back())), sim.losses.back(),
      recorded.configurations);
  return {};
}

void resolve_rest_of_world(const WorldArgs& args, Simulation& sim) {
  World& world = sim.scenario.world;
  world.noise_rank = *args.noise_rank;
  world.loss_noise = *args.loss_noise;
  const ControllerOptions& controller = sim.scenario.controller;
  sim.assume(
      "critical batch / noise scale: {:.3g} in truth, {}; gradient noise of rank {}; losses of "
      "samples differ by {:.2g} nats; step times off by {:.0f}% from layout to layout, {:.0f}% "
      "from step to step",
      world.calibration,
      controller.calibration ? std::string("learned by copus from its losses")
                             : fmt::format("{:.3g} believed", controller.policy.calibration),
      human_count(world.noise_rank), world.loss_noise, 100 * sim.step_error,
      100 * world.step_jitter);
  const Seconds pause = args.pause.value_or(Seconds());
  const StateBytes state = {element_bytes(sim.job.options), optimizer_bytes(sim.job.options)};
  world.pause = [model = sim.job.model, cluster = sim.job.cluster, state, pause](
                    const Configuration& from, const Configuration& to) {
    if (pause > Seconds() && !same_placement(from.plan, to.plan)) return pause;
    return predict_pause(model, cluster, state, from, to);
  };
  sim.assume("a change of layout pauses {}",
             pause > Seconds() ? "for " + human_seconds(pause)
                               : std::string("as the reshard model predicts: bytes over links"));
  FailureOptions& f = world.failures;
  f.between = args.failures_every.value_or(f.between);
  f.checkpoint_every = *args.save_every;
  f.checkpoint = args.save_cost.value_or(f.checkpoint);
  f.restart = *args.restart;
  if (f.between > Seconds()) {
    sim.assume(
        "a failure every {} on average, {} to restart, a checkpoint every {} that holds the run up "
        "for {}",
        human_seconds(f.between), human_seconds(f.restart), human_seconds(f.checkpoint_every),
        human_seconds(f.checkpoint));
  }
}

}  // namespace

Result<Simulation> resolve_simulation(const CompareArgs& args) {
  Simulation sim;
  COPUS_TRY(const std::vector<RecordedRun> runs, read_runs(args));
  COPUS_TRY_VOID(resolve_job(args, runs, sim));
  // By default the policy maximises the Goodput that agrees with the law of the world.
  PolicyOptions& policy = sim.scenario.controller.policy;
  if (runs.empty())
    policy.kind =
        *args.world.law == LawKind::kLrAware ? GoodputKind::kLrAware : GoodputKind::kPlain;
  COPUS_TRY_VOID(resolve_policy(args.policy, sim.scenario.controller));
  std::optional<CalibrationPrior>& learned = sim.scenario.controller.calibration;
  if (learned && runs.empty()) learned->kind = policy.kind;
  COPUS_TRY_VOID(resolve_candidates(args, sim));
  COPUS_TRY_VOID(runs.empty() ? resolve_published_world(args, sim)
                              : resolve_recorded_world(args, runs, sim));
  resolve_rest_of_world(args.world, sim);
  const bool learns_kind = learned && !learned->kind;
  sim.assume("copus maximises {} Goodput; a change of layout has to gain {:g}%, one of batch {:g}%",
             learns_kind ? "plain or lr-aware" : to_string(policy.kind), 100 * policy.margin,
             100 * policy.batch_margin);
  return sim;
}

}  // namespace copus
