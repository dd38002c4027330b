#include "apps/copus/args/train_args.h"

#include <fmt/ranges.h>

#include "apps/copus/args/resumed_run.h"
#include "apps/copus/common.h"
#include "copus/args/config_file.h"
#include "copus/base/text.h"
#include "copus/base/utc_stamp.h"
#include "copus/spec/hf_config.h"
#include "copus/train/health/watchdog.h"

namespace copus {
namespace {

PlanChoice plan_choice(const TrainArgs& args) {
  if (!args.plan.known()) return PlanChoice::kLeftOpen;
  return *args.plan == kBestPlan ? PlanChoice::kBest : PlanChoice::kGiven;
}

Result<ParallelPlan> resolve_plan(const TrainArgs& args, const ModelSpec& model, int ranks,
                                  int local_ranks, std::int64_t seq_len,
                                  std::int64_t global_batch) {
  PartialPlan partial;
  const PlanChoice choice = plan_choice(args);
  if (choice == PlanChoice::kGiven) {
    COPUS_TRY(partial, load_partial_plan(*args.plan, "--plan"));
  }
  COPUS_TRY_VOID(
      fill_in_dp(partial, ranks, "--plan", fmt::format("the {}", counted(ranks, "rank"))));
  ParallelPlan& plan = partial.plan;
  if (!partial.has(PlanField::kMicroBatch) && plan.dp > 0 && global_batch % plan.dp == 0) {
    // Takes the largest of 8, 4, 2 and 1 that divides a replica's share and gives a pipeline at
    // least pp micro-batches.
    const std::int64_t share = global_batch / plan.dp / (plan.pp > 1 ? plan.pp : 1);
    for (const std::int64_t size : {8, 4, 2, 1}) {
      if (share >= size && global_batch / plan.dp % size == 0) {
        plan.micro_batch = size;
        break;
      }
    }
  }
  // A run that adapts without --plan chooses its plan later.
  const bool chosen_later = choice == PlanChoice::kBest ||
                            (choice == PlanChoice::kLeftOpen && *args.adapt.adapt != Adapt::kOff);
  if (!chosen_later) {
    COPUS_TRY_VOID(
        plan.validate(model, ranks_as_cluster(ranks, local_ranks), seq_len, global_batch));
  }
  return plan;
}

Result<void> resolve_limits(const LimitArgs& args, RunOptions& run) {
  if (args.steps.known()) run.steps = *args.steps;
  if (args.samples.known()) run.samples = *args.samples;
  if (args.until_loss.known()) run.until_loss = *args.until_loss;
  if (args.for_time.known()) run.for_time = *args.for_time;
  if (!run.steps && !run.samples && !run.until_loss && !run.for_time) {
    return field_error("--steps", "missing; want one of --steps, --samples, --until-loss or --for");
  }
  return {};
}

Result<void> resolve_optimizer(OptimizerArgs& args, const RunOptions& run, TrainerOptions& t) {
  t.lr.peak = *args.lr;
  args.min_lr.set_default(t.lr.peak / 10);
  t.lr.floor = *args.min_lr;
  if (t.lr.floor > t.lr.peak) {
    return field_error("--min-lr", "got {}; want a number from 0 to {}", t.lr.floor, t.lr.peak);
  }
  // If the run adapts its batch, the number of steps does not give the number of samples.
  std::int64_t total = 0;
  if (run.steps && !run.adapt.on()) {
    if (*run.steps > kMany / t.global_batch) {
      return field_error("--steps", "got {} of batch {}; want at most {} samples in all",
                         *run.steps, t.global_batch, kMany);
    }
    total = *run.steps * t.global_batch;
  }
  if (run.samples) total = total == 0 ? *run.samples : std::min(total, *run.samples);
  args.warmup_samples.set_default(total / 50);
  args.decay_samples.set_default(total);
  t.lr.warmup_samples = *args.warmup_samples;
  t.lr.decay_samples = *args.decay_samples;
  t.adam = {*args.beta1, *args.beta2, *args.eps, *args.weight_decay};
  t.clip_norm = *args.clip;
  return {};
}

std::string default_run_dir(const std::string& model) {
  return fmt::format("runs/{}-{}", model, utc_stamp());
}

}  // namespace

Result<int> wanted_ranks(const TrainArgs& args, const std::optional<RankEnvironment>& environment) {
  const std::int64_t asked = args.ranks.value_or(0);
  if (!environment) return static_cast<int>(std::max<std::int64_t>(1, asked));
  if (asked != 0 && asked != environment->world_size) {
    return field_error("--ranks", "got {}; {} started {} (leave --ranks out)", asked,
                       to_string(environment->launcher), environment->world_size);
  }
  return environment->world_size;
}

namespace {

// Returns the run's model. A resumed run takes it from a checkpoint, because the file that it came
// from may be gone.
Result<ModelSpec> resolve_model(const TrainArgs& args) {
  if (*args.checkpoint.resume && args.model.from() < From::kConfig) {
    if (const std::optional<ModelSpec> model = resumed_model(*args.run_dir)) return *model;
  }
  if (!args.model.known()) {
    return field_error("--model", "missing; want a catalog name or a Hugging Face config.json");
  }
  return load_model(*args.model);
}

// Sets the options of the trainer: the model, the batch, the plan and the ranks.
Result<void> resolve_trainer(TrainArgs& args, int ranks, int local_ranks, TrainerOptions& t) {
  COPUS_TRY(t.model, resolve_model(args));
  args.seq_len.set_default(std::min(kMostUsualTrainSeqLen, t.model.max_positions));
  t.seq_len = *args.seq_len;
  if (t.model.positions == Positions::kLearned && t.seq_len > t.model.max_positions) {
    return field_error("--seq-len", "got {}; {} has learned positions for {} at most", t.seq_len,
                       t.model.name, t.model.max_positions);
  }
  t.global_batch = *args.global_batch;
  args.ranks.set_default(ranks);
  COPUS_TRY(t.plan, resolve_plan(args, t.model, ranks, local_ranks, t.seq_len, t.global_batch));
  t.seed = static_cast<std::uint64_t>(*args.seed);
  MachineArgs& machine = args.machine;
  machine.precision.set_default(*machine.device == DeviceKind::kCuda ? Compute::kBf16
                                                                     : Compute::kFp32);
  t.compute = *machine.precision;
  t.bucket_elements = *machine.bucket_mib * 1024 * 1024 / 4;
  t.ranks_per_node = local_ranks;
  args.optimizer.base_batch.set_default(t.global_batch);
  t.base_batch = *args.optimizer.base_batch;
  t.noise_every = args.evaluation.noise_every.value_or(0);
  return check_trainable(t);
}

// Returns the text of config.toml: the options that the user gave, and the defaults that decide
// what the run computes. Its paths are absolute, so that --config can read it from every folder.
std::string config_of(TrainArgs& args, const RunOptions& run) {
  // A run of an imported model may have no --model: the model is in the checkpoint.
  if (args.model.known() && is_model_path(*args.model)) {
    args.model.write_as(from_anywhere(*args.model));
  }
  std::vector<std::string> data = run.data;
  for (std::string& file : data) {
    if (file != "builtin") file = from_anywhere(file);
  }
  args.data.write_as(data);
  if (!run.adapt.choose_plan) {
    args.plan.write_as(short_name(run.trainer.plan));
  } else if (run.adapt.on()) {
    args.plan.leave_out_of_file();
  }
  // The default is --global-batch, which a resumed run may change.
  if (run.trainer.base_batch == run.trainer.global_batch) {
    args.optimizer.base_batch.leave_out_of_file();
  }
  return to_toml(args);
}

}  // namespace

Result<RunOptions> resolve_run(TrainArgs& args, int ranks, int local_ranks) {
  RunOptions run;
  TrainerOptions& t = run.trainer;
  COPUS_TRY_VOID(resolve_trainer(args, ranks, local_ranks, t));
  COPUS_TRY(run.adapt, resolve_adapt(args.adapt, t, plan_choice(args), ranks));
  run.bad_steps = resolve_bad_steps(args.failures);
  COPUS_TRY(run.checkpoint, resolve_checkpoints(args.checkpoint));
  run.checkpoint.plan_given = args.plan.from() == From::kCommandLine;
  run.checkpoint.batch_given = args.global_batch.from() == From::kCommandLine;
  run.checkpoint.lr_given = args.optimizer.lr.from() == From::kCommandLine ||
                            args.optimizer.base_batch.from() == From::kCommandLine;
  run.checkpoint.wait = longest_time(Doing::kSaving, *args.machine.timeout);
  if (run.bad_steps.action == OnBadStep::kRollback && run.checkpoint.every == 0) {
    return field_error("--on-bad-step",
                       "got rollback without --checkpoint-every; want checkpoints to "
                       "go back to");
  }
  COPUS_TRY_VOID(resolve_limits(args.limits, run));
  COPUS_TRY_VOID(resolve_optimizer(args.optimizer, run, t));
  run.data = *args.data;
  const EvaluationArgs& evaluation = args.evaluation;
  run.held_out = *evaluation.held_out;
  run.eval_every = evaluation.every.value_or(0);
  run.eval_samples = *evaluation.samples;
  if (run.eval_every > 0 && run.held_out == 0) {
    return field_error("--held-out", "got 0 with --eval-every; want a share above 0");
  }
  args.run_dir.set_default(default_run_dir(t.model.name));
  run.run_dir = *args.run_dir;
  run.config = config_of(args, run);
  return run;
}

std::int64_t nearest_batch(const TrainerOptions& trainer, int ranks) {
  const ClusterSpec cluster = ranks_as_cluster(ranks, ranks);
  const auto runs = [&](std::int64_t batch) {
    for (int tp = 1; tp <= ranks; ++tp) {
      for (int pp = 1; ranks % tp == 0 && pp <= ranks / tp; ++pp) {
        if (ranks / tp % pp != 0) continue;
        TrainerOptions there = trainer;
        there.plan = ParallelPlan();
        there.plan.tp = tp;
        there.plan.pp = pp;
        there.plan.dp = ranks / tp / pp;
        if (check_trainable(there) &&
            there.plan.validate(trainer.model, cluster, trainer.seq_len, batch)) {
          return true;
        }
      }
    }
    return false;
  };
  // A batch that is a multiple of the ranks can always be trained, with data parallelism alone.
  const std::int64_t batch = trainer.global_batch;
  for (std::int64_t d = 0; d < ranks; ++d) {
    if (runs(batch + d)) return batch + d;
    if (batch > d && runs(batch - d)) return batch - d;
  }
  return (batch + ranks - 1) / ranks * ranks;
}

}  // namespace copus
