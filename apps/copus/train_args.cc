#include "apps/copus/train_args.h"

#include <fmt/ranges.h>

#include "apps/copus/common.h"
#include "copus/base/text.h"
#include "copus/base/utc_stamp.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/train/health/watchdog.h"

namespace copus {
namespace {

Result<std::int64_t> integer(const std::string& text, const char* flag, std::int64_t fallback,
                             std::int64_t low, std::int64_t high) {
  if (text.empty()) return fallback;
  return parse_integer(text, flag, low, high);
}

Result<double> number(const std::string& text, const char* flag, double fallback, double low,
                      double high) {
  if (text.empty()) return fallback;
  return parse_number(text, flag, low, high);
}

}  // namespace

std::string plan_text(const ParallelPlan& plan) {
  std::string text = fmt::format(
      "dp={},tp={},pp={},vp={},cp={},ep={},micro_batch={},zero={},recompute={},sp={},schedule={}",
      plan.dp, plan.tp, plan.pp, plan.vp, plan.cp, plan.ep, plan.micro_batch, plan.zero,
      to_string(plan.recompute), plan.sp ? 1 : 0, to_string(plan.schedule));
  if (!plan.stage_layers.empty()) {
    text += fmt::format(",split={}", fmt::join(plan.stage_layers, "-"));
  }
  return text;
}

namespace {

// The ranks as a cluster, for ParallelPlan::validate().
ClusterSpec ranks_as_cluster(int ranks, int local_ranks) {
  ClusterSpec cluster;
  cluster.name = fmt::format("this run ({} rank{})", ranks, ranks == 1 ? "" : "s");
  cluster.nodes = ranks / local_ranks;
  cluster.gpus_per_node = local_ranks;
  return cluster;
}

constexpr const char* kBestPlan = "best";
bool plan_given(const TrainArgs& args) { return !args.plan.empty() && args.plan != kBestPlan; }

Result<ParallelPlan> resolve_plan(const TrainArgs& args, const ModelSpec& model, int ranks,
                                  int local_ranks, std::int64_t seq_len,
                                  std::int64_t global_batch) {
  PartialPlan partial;
  if (plan_given(args)) {
    COPUS_TRY(partial, load_partial_plan(args.plan, "--plan"));
  }
  ParallelPlan& plan = partial.plan;
  if (!partial.has("dp")) {
    const std::int64_t others = plan.tp * plan.cp * plan.pp;
    if (others < 1 || others > ranks || ranks % others != 0) {
      return make_error("--plan: got tp*cp*pp = {} ({}*{}*{}); want a divisor of the {} ranks",
                        others, plan.tp, plan.cp, plan.pp, ranks);
    }
    plan.dp = ranks / others;
  }
  if (!partial.has("micro_batch") && plan.dp > 0 && global_batch % plan.dp == 0) {
    // The largest up to 8 that divides a replica's share; a pipeline wants several.
    const std::int64_t share = global_batch / plan.dp / (plan.pp > 1 ? plan.pp : 1);
    for (const std::int64_t size : {8, 4, 2, 1}) {
      if (share >= size && global_batch / plan.dp % size == 0) {
        plan.micro_batch = size;
        break;
      }
    }
  }
  // A run that adapts and is given no plan chooses its own.
  const bool chosen_later =
      !plan_given(args) &&
      (!args.plan.empty() || (!args.adapt.adapt.empty() && args.adapt.adapt != "off"));
  if (!chosen_later) {
    COPUS_TRY_VOID(
        plan.validate(model, ranks_as_cluster(ranks, local_ranks), seq_len, global_batch));
  }
  return plan;
}

Result<void> resolve_limits(const TrainArgs& args, RunOptions& run) {
  if (!args.steps.empty()) {
    COPUS_TRY(run.steps, parse_integer(args.steps, "--steps", 1, kMany));
  }
  if (!args.samples.empty()) {
    COPUS_TRY(run.samples, parse_integer(args.samples, "--samples", 1, kMany));
  }
  if (!args.until_loss.empty()) {
    COPUS_TRY(run.until_loss, parse_number(args.until_loss, "--until-loss", 0, 1e6));
  }
  if (!args.for_time.empty()) {
    COPUS_TRY(const double seconds, parse_duration(args.for_time, "--for"));
    run.for_time = Seconds(seconds);
  }
  if (!run.steps && !run.samples && !run.until_loss && !run.for_time) {
    return make_error("--steps: missing; want one of --steps, --samples, --until-loss or --for");
  }
  return {};
}

Result<void> resolve_optimizer(const TrainArgs& args, const RunOptions& run, TrainerOptions& t) {
  COPUS_TRY(t.lr.peak, number(args.lr, "--lr", 3e-4, 0, 100));
  COPUS_TRY(t.lr.floor, number(args.min_lr, "--min-lr", t.lr.peak / 10, 0, t.lr.peak));
  // A run that adapts its batch has no known number of samples in so many steps.
  std::int64_t total = 0;
  if (run.steps && !run.adapt.on()) {
    if (*run.steps > kMany / t.global_batch) {
      return make_error("--steps: got {} of batch {}; want at most {} samples in all", *run.steps,
                        t.global_batch, kMany);
    }
    total = *run.steps * t.global_batch;
  }
  if (run.samples) total = total == 0 ? *run.samples : std::min(total, *run.samples);
  COPUS_TRY(t.lr.warmup_samples,
            integer(args.warmup_samples, "--warmup-samples", total / 50, 0, kMany));
  COPUS_TRY(t.lr.decay_samples, integer(args.decay_samples, "--decay-samples", total, 0, kMany));
  COPUS_TRY(t.adam.weight_decay, number(args.weight_decay, "--weight-decay", 0.1, 0, 10));
  COPUS_TRY(t.adam.beta1, number(args.beta1, "--beta1", 0.9, 0, 0.999999));
  COPUS_TRY(t.adam.beta2, number(args.beta2, "--beta2", 0.95, 0, 0.999999999));
  COPUS_TRY(t.adam.eps, number(args.eps, "--eps", 1e-8, 1e-20, 1));
  COPUS_TRY(t.clip_norm, number(args.clip, "--clip", 1.0, 0, 1e12));
  return {};
}

Result<Compute> resolve_precision(const TrainArgs& args) {
  if (args.precision.empty()) return args.device == "cuda" ? Compute::kBf16 : Compute::kFp32;
  if (args.precision == "fp32") return Compute::kFp32;
  if (args.precision == "bf16") return Compute::kBf16;
  return make_error("--precision: got {}; want fp32 or bf16", args.precision);
}

std::string default_run_dir(const std::string& model) {
  return fmt::format("runs/{}-{}", model, utc_stamp());
}

}  // namespace

void add_train_options(CLI::App& command, TrainArgs& a) {
  const auto text = [&](const char* flag, std::string& value, const char* help) {
    return command.add_option(flag, value, help)->check(not_empty());
  };
  text("--config", a.config, "take options from this TOML file; the command line wins");
  text("--model", a.model, "catalog name, or a Hugging Face config.json");
  command
      .add_option("--data", a.data,
                  "builtin, text files, or Megatron-LM's .bin/.idx (default: builtin)")
      ->check(not_empty());
  text("--ranks", a.ranks, "local processes to start (default: 1, or the launcher's)");
  text("--plan", a.plan,
       "tp=2,pp=2,…, a plan.json, or best: what is predicted to be fastest (default: dp over all "
       "ranks)");
  text("--global-batch", a.global_batch, "sequences per step (default: 32)");
  text(
      "--base-batch", a.base_batch,
      "the batch that --lr is meant for: at another it is scaled by the square root of their ratio "
      "(default: --global-batch)");
  text("--seq-len", a.seq_len, "tokens per sequence (default: the model's positions, at most 512)");
  text("--steps", a.steps, "stop after so many steps");
  text("--samples", a.samples, "stop after so many samples, rounded up to whole steps");
  text("--until-loss", a.until_loss,
       "stop at this loss (held-out loss with --eval-every); exit code 1 if it is not reached");
  text("--for", a.for_time, "stop after 90s, 10m, 2h");
  text("--lr", a.lr, "peak learning rate (default: 3e-4)");
  text("--min-lr", a.min_lr, "floor of the cosine (default: a tenth of --lr)");
  text("--warmup-samples", a.warmup_samples, "linear warm-up (default: 2% of the run)");
  text("--decay-samples", a.decay_samples,
       "end of the cosine (default: the end of the run, where --steps or --samples says it)");
  text("--weight-decay", a.weight_decay, "on matrices (default: 0.1)");
  text("--beta1", a.beta1, "Adam's (default: 0.9)");
  text("--beta2", a.beta2, "Adam's (default: 0.95)");
  text("--eps", a.eps, "Adam's (default: 1e-8)");
  text("--clip", a.clip, "largest gradient norm; 0 for none (default: 1)");
  text("--seed", a.seed, "of weights and of the order of samples (default: 1)");
  text("--device", a.device, "cpu or cuda (default: cpu)");
  text("--precision", a.precision,
       "fp32 or bf16 with FP32 master weights (default: fp32, on cuda "
       "bf16)");
  text("--noise-every", a.noise_every,
       "steps between measurements of the gradient noise scale (default: as often as costs less "
       "than 1%)");
  text("--held-out", a.held_out, "share of the data kept for evaluation (default: 0.05)");
  text("--eval-every", a.eval_every, "steps between evaluations on held-out data (default: never)");
  text("--eval-samples", a.eval_samples, "held-out sequences per evaluation (default: 64)");
  text("--run-dir", a.run_dir, "where config.toml and events.jsonl go (default: runs/MODEL-TIME)");
  text("--timeout", a.timeout, "longest wait for another rank (default: 5m)");
  text("--port", a.port, "where local ranks meet (default: a free port)");
  text("--bucket-mib", a.bucket_mib, "gradients reduced at a time, MiB (default: 32)");
  add_adapt_options(command, a.adapt);
  add_failure_options(command, a.failures);
  add_checkpoint_options(command, a.checkpoint);
  command.add_flag("--json", a.json, "print the outcome as JSON; progress goes to standard error");
}

Result<int> wanted_ranks(const TrainArgs& args, const std::optional<RankEnvironment>& environment) {
  COPUS_TRY(const std::int64_t asked, integer(args.ranks, "--ranks", 0, 1, 4096));
  if (!environment) return static_cast<int>(std::max<std::int64_t>(1, asked));
  if (asked != 0 && asked != environment->world_size) {
    return make_error("--ranks: got {}; {} started {} (leave --ranks out)", asked,
                      environment->launcher, environment->world_size);
  }
  return environment->world_size;
}

namespace {

// A checkpoint has its own model: the file that it came from may be gone.
Result<ModelSpec> resolve_model(const TrainArgs& args) {
  if (args.checkpoint.resume && !args.checkpoint.model_given) {
    if (const std::optional<ModelSpec> model = resumed_model(args.run_dir)) return *model;
  }
  if (args.model.empty()) {
    return make_error("--model: missing; want a catalog name or a Hugging Face config.json");
  }
  return load_model(args.model);
}

}  // namespace

Result<RunOptions> resolve_run(const TrainArgs& args, int ranks, int local_ranks) {
  RunOptions run;
  TrainerOptions& t = run.trainer;
  COPUS_TRY(t.model, resolve_model(args));
  COPUS_TRY(t.seq_len, integer(args.seq_len, "--seq-len",
                               std::min<std::int64_t>(512, t.model.max_positions), 1, 1 << 20));
  if (t.model.positions == Positions::kLearned && t.seq_len > t.model.max_positions) {
    return make_error("--seq-len: got {}; {} has learned positions for {} at most", t.seq_len,
                      t.model.name, t.model.max_positions);
  }
  COPUS_TRY(t.global_batch, integer(args.global_batch, "--global-batch", 32, 1, 1 << 30));
  COPUS_TRY(t.plan, resolve_plan(args, t.model, ranks, local_ranks, t.seq_len, t.global_batch));
  COPUS_TRY(const std::int64_t seed, integer(args.seed, "--seed", 1, 0, kMany));
  t.seed = static_cast<std::uint64_t>(seed);
  COPUS_TRY(t.compute, resolve_precision(args));
  if (!args.device.empty() && args.device != "cpu" && args.device != "cuda") {
    return make_error("--device: got {}; want cpu or cuda", args.device);
  }
  COPUS_TRY(const std::int64_t bucket, integer(args.bucket_mib, "--bucket-mib", 32, 1, 1 << 14));
  t.bucket_elements = bucket * 1024 * 1024 / 4;
  t.ranks_per_node = local_ranks;
  COPUS_TRY(t.base_batch, integer(args.base_batch, "--base-batch", t.global_batch, 1, 1 << 30));
  COPUS_TRY(t.noise_every, integer(args.noise_every, "--noise-every", 0, 1, kMany));
  COPUS_TRY_VOID(check_trainable(t));
  COPUS_TRY(run.adapt, resolve_adapt(args.adapt, t, plan_given(args), ranks));

  if (args.plan == kBestPlan) run.adapt.choose_plan = true;
  COPUS_TRY(run.bad_steps, resolve_bad_steps(args.failures));

  COPUS_TRY(run.checkpoint, resolve_checkpoints(args.checkpoint));
  COPUS_TRY(const double timeout_s, collective_timeout_s(args));
  run.checkpoint.wait = longest_time(Doing::kSaving, Seconds(timeout_s));
  if (run.bad_steps.action == OnBadStep::kRollback && run.checkpoint.every == 0) {
    return make_error(
        "--on-bad-step: got rollback without --checkpoint-every; want checkpoints to "
        "go back to");
  }
  COPUS_TRY_VOID(resolve_limits(args, run));
  COPUS_TRY_VOID(resolve_optimizer(args, run, t));
  if (!args.data.empty()) run.data = args.data;
  COPUS_TRY(run.held_out, number(args.held_out, "--held-out", 0.05, 0, 0.9));
  COPUS_TRY(run.eval_every, integer(args.eval_every, "--eval-every", 0, 1, kMany));
  COPUS_TRY(run.eval_samples, integer(args.eval_samples, "--eval-samples", 64, 1, kMany));
  if (run.eval_every > 0 && run.held_out == 0) {
    return make_error("--held-out: got 0 with --eval-every; want a share above 0");
  }
  run.run_dir = args.run_dir.empty() ? default_run_dir(t.model.name) : args.run_dir;
  return run;
}

namespace {

// As load_model() sees it: other names are the catalog's.
bool is_model_path(const std::string& model) {
  std::error_code failed;
  return model.find('/') != std::string::npos || model.ends_with(".json") ||
         (!catalog_model_text(model) && std::filesystem::exists(model, failed));
}

}  // namespace

std::string resolved_config(const RunOptions& run, const TrainArgs& args) {
  const TrainerOptions& t = run.trainer;
  // A JSON string is a TOML string.
  std::string text;
  const auto put = [&](const char* key, const auto& value) {
    text += fmt::format("{} = {}\n", key, Json(value).dump());
  };
  // An imported one is in its checkpoint.
  if (!args.model.empty()) {
    put("model", is_model_path(args.model) ? from_anywhere(args.model) : args.model);
  }
  std::vector<std::string> data = run.data;
  for (std::string& file : data) {
    if (file != "builtin") file = from_anywhere(file);
  }
  put("data", data);
  put("ranks", t.plan.gpus());
  if (!run.adapt.choose_plan) {
    put("plan", plan_text(t.plan));
  } else if (!run.adapt.on()) {
    put("plan", kBestPlan);
  }
  put("global-batch", t.global_batch);
  if (t.base_batch != t.global_batch) put("base-batch", t.base_batch);
  put("seq-len", t.seq_len);
  if (run.steps) put("steps", *run.steps);
  if (run.samples) put("samples", *run.samples);
  if (run.until_loss) put("until-loss", *run.until_loss);
  if (run.for_time) put("for", fmt::format("{}s", run.for_time->v));
  put("lr", t.lr.peak);
  // The default follows --lr, which may be given anew.
  if (!args.min_lr.empty()) put("min-lr", t.lr.floor);
  put("warmup-samples", t.lr.warmup_samples);
  put("decay-samples", t.lr.decay_samples);
  put("weight-decay", t.adam.weight_decay);
  put("beta1", t.adam.beta1);
  put("beta2", t.adam.beta2);
  put("eps", t.adam.eps);
  put("clip", t.clip_norm);
  put("seed", static_cast<std::int64_t>(t.seed));
  put("device", args.device.empty() ? "cpu" : args.device);
  put("precision", t.compute == Compute::kBf16 ? "bf16" : "fp32");
  if (t.noise_every > 0) put("noise-every", t.noise_every);
  for (const auto& [key, value] : adapt_config(run.adapt, args.adapt)) put(key.c_str(), value);
  for (const auto& [key, value] : checkpoint_config(run.checkpoint)) put(key.c_str(), value);
  put("held-out", run.held_out);
  if (run.eval_every > 0) put("eval-every", run.eval_every);
  put("eval-samples", run.eval_samples);
  put("run-dir", run.run_dir);
  put("timeout", args.timeout.empty() ? "300s" : args.timeout);
  for (const auto& [key, value] : failure_config(args.failures, run.bad_steps)) {
    put(key.c_str(), value);
  }
  put("bucket-mib", t.bucket_elements * 4 / (1024 * 1024));
  return text;
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
  // A multiple of the ranks always runs, as replicas alone.
  const std::int64_t batch = trainer.global_batch;
  for (std::int64_t d = 0; d < ranks; ++d) {
    if (runs(batch + d)) return batch + d;
    if (batch > d && runs(batch - d)) return batch - d;
  }
  return (batch + ranks - 1) / ranks * ranks;
}

Result<double> collective_timeout_s(const TrainArgs& args) {
  return args.timeout.empty() ? Result<double>(300.0) : parse_duration(args.timeout, "--timeout");
}

Result<int> rendezvous_port(const TrainArgs& args) {
  COPUS_TRY(const std::int64_t port, integer(args.port, "--port", 0, 1, 65535));
  return static_cast<int>(port);
}

}  // namespace copus
