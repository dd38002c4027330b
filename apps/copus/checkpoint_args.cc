#include "apps/copus/checkpoint_args.h"

#include <filesystem>

#include "apps/copus/common.h"
#include "apps/copus/config_file.h"
#include "apps/copus/train_args.h"
#include "copus/base/text.h"

namespace copus {
namespace {

std::optional<Manifest> newest_manifest(const std::string& run_dir) {
  const auto found = list_checkpoints(run_dir);
  if (!found) return std::nullopt;
  for (auto checkpoint = found->rbegin(); checkpoint != found->rend(); ++checkpoint) {
    Result<Manifest> manifest = read_manifest(checkpoint->folder);
    if (manifest) return std::move(manifest).value();
  }
  return std::nullopt;
}

// Who ends adapting keeps what it has found; config.toml has what it began with.
void stay_where_it_is(TrainArgs& args, int ranks) {
  const std::optional<Manifest> newest = newest_manifest(args.run_dir);
  if (!newest || !newest->optimizer) return;  // imported weights have been nowhere
  const CheckpointArgs& given = args.checkpoint;
  if (!given.batch_given) args.global_batch = std::to_string(newest->global_batch);
  if (!given.plan_given && newest->plan.gpus() == ranks) args.plan = short_name(newest->plan);
}

}  // namespace

void add_checkpoint_options(CLI::App& command, CheckpointArgs& a) {
  const auto text = [&](const char* flag, std::string& value, const char* help) {
    command.add_option(flag, value, help)->check(not_empty())->group("Checkpoints");
  };
  text("--checkpoint-every", a.every,
       "save every so many steps, too; off: never (default: at the end, and where SIGTERM or "
       "SIGUSR1 ends the run)");
  text("--keep", a.keep, "how many of the last checkpoints stay (default: 2)");
  text("--keep-every", a.keep_every,
       "checkpoints of steps that are a multiple of this stay for ever (default: none)");
  command
      .add_flag("--resume", a.resume,
                "go on from the newest checkpoint in --run-dir; its config.toml has the options "
                "that are not given")
      ->group("Checkpoints");
  command
      .add_flag(
          "--other-data", a.other_data,
          "with --resume: --data, --seq-len, --seed or --held-out are meant to be others than "
          "the run was on")
      ->group("Checkpoints");
}

void note_given(TrainArgs& args) {
  CheckpointArgs& given = args.checkpoint;
  given.model_given = !args.model.empty();
  given.plan_given = !args.plan.empty();
  given.batch_given = !args.global_batch.empty();
  given.lr_given = !args.lr.empty() || !args.base_batch.empty();
  given.ends_adapting = args.adapt.adapt == "off";
}

Result<void> apply_resumed_config(CLI::App& command, TrainArgs& args,
                                  const std::optional<RankEnvironment>& environment) {
  CheckpointArgs& given = args.checkpoint;
  if (!given.resume) return {};
  if (args.run_dir.empty()) return make_error("--run-dir: missing; want the run to --resume");
  const std::string path = (std::filesystem::path(args.run_dir) / "config.toml").string();
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) {
    // A model that was imported, or a run that ended before it had begun.
    if (given.model_given || resumed_model(args.run_dir)) return {};
    return make_error("--resume: {} has no config.toml; want the directory of a run", args.run_dir);
  }
  const bool ranks_given = environment.has_value() || !args.ranks.empty();
  ConfigRules rules;
  if (environment) rules.except.emplace_back("ranks");
  COPUS_TRY_VOID(apply_config(command, path, rules));
  if (given.ends_adapting && config_value(path, "adapt").value_or("off") != "off") {
    COPUS_TRY(const int ranks, wanted_ranks(args, environment));
    stay_where_it_is(args, ranks);
  }
  if (!ranks_given || given.plan_given || args.plan.empty()) return {};
  COPUS_TRY(const int ranks, wanted_ranks(args, environment));
  const Result<PartialPlan> plan = load_partial_plan(args.plan, "--plan");
  if (plan && plan->plan.gpus() != ranks) args.plan.clear();
  return {};
}

std::optional<ModelSpec> resumed_model(const std::string& run_dir) {
  const std::optional<Manifest> newest = newest_manifest(run_dir);
  if (!newest) return std::nullopt;
  return newest->model;
}

Result<void> check_new(const std::string& run_dir) {
  // An earlier run's events are refused where they are opened.
  std::error_code failed;
  if (std::filesystem::file_size(run_dir + "/events.jsonl", failed) > 0 && !failed) return {};
  const auto found = list_checkpoints(run_dir);
  if (!found || found->empty()) return {};
  return make_error(
      "--run-dir: got {}, which holds the checkpoint {}; want --resume to go on from it, or "
      "another directory",
      run_dir, std::filesystem::path(found->back().folder).filename().string());
}

Result<CheckpointOptions> resolve_checkpoints(const CheckpointArgs& args) {
  CheckpointOptions out;
  if (args.other_data && !args.resume) {
    return make_error("--other-data: got without --resume; want it only for a run that goes on");
  }
  if (args.every == "off") {
    out.save = false;
  } else if (!args.every.empty()) {
    const Result<std::int64_t> every = parse_integer(args.every, "--checkpoint-every", 1, kMany);
    if (!every) {
      return make_error("--checkpoint-every: got {}; want steps, 1 or more, or off", args.every);
    }
    out.every = *every;
  }
  if (!args.keep.empty()) {
    COPUS_TRY(out.retention.keep, parse_integer(args.keep, "--keep", 1, kMany));
  }
  if (!args.keep_every.empty()) {
    COPUS_TRY(out.retention.keep_every, parse_integer(args.keep_every, "--keep-every", 1, kMany));
  }
  out.resume = args.resume;
  out.plan_given = args.plan_given;
  out.batch_given = args.batch_given;
  out.lr_given = args.lr_given;
  out.other_data = args.other_data;
  out.version = COPUS_VERSION;
  out.why = environment_variable("COPUS_RESTART_WHY").value_or("--resume");
  return out;
}

std::vector<std::pair<std::string, Json>> checkpoint_config(const CheckpointOptions& options) {
  std::vector<std::pair<std::string, Json>> out;
  if (!options.save) out.emplace_back("checkpoint-every", "off");
  if (options.every > 0) out.emplace_back("checkpoint-every", options.every);
  out.emplace_back("keep", options.retention.keep);
  if (options.retention.keep_every > 0) {
    out.emplace_back("keep-every", options.retention.keep_every);
  }
  return out;
}

}  // namespace copus
