#include "apps/copus/args/resumed_run.h"

#include <filesystem>

#include "apps/copus/common.h"
#include "copus/args/config_file.h"
#include "copus/base/whole_file.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/checkpoint/manifest.h"

namespace copus {
namespace {

std::string config_path(const std::string& run_dir) {
  return (std::filesystem::path(run_dir) / "config.toml").string();
}

std::optional<Manifest> newest_manifest(const std::string& run_dir) {
  const auto found = list_checkpoints(run_dir);
  if (!found) return std::nullopt;
  for (auto checkpoint = found->rbegin(); checkpoint != found->rend(); ++checkpoint) {
    Result<Manifest> manifest = read_manifest(checkpoint->folder);
    if (manifest) return std::move(manifest).value();
  }
  return std::nullopt;
}

// A run that stops adapting stays at the plan and batch that it reached. config.toml has those that
// it began with.
void stay_where_it_is(TrainArgs& args, int ranks) {
  const std::optional<Manifest> newest = newest_manifest(*args.run_dir);
  if (!newest || !newest->optimizer) return;  // imported weights have no plan
  if (args.global_batch.from() != From::kCommandLine) {
    args.global_batch.set(newest->global_batch, From::kRun);
  }
  if (args.plan.from() != From::kCommandLine && newest->plan.gpus() == ranks) {
    args.plan.set(short_name(newest->plan), From::kRun);
  }
}

}  // namespace

Result<void> read_resumed_config(TrainArgs& args,
                                 const std::optional<RankEnvironment>& environment) {
  if (!*args.checkpoint.resume) return {};
  if (!args.run_dir.known()) return field_error("--run-dir", "missing; want the run to --resume");
  const std::string path = config_path(*args.run_dir);
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) {
    // An imported model, or a run that ended before its first step.
    if (args.model.given() || resumed_model(*args.run_dir)) return {};
    return field_error("--resume", "{} has no config.toml; want the directory of a run",
                       *args.run_dir);
  }
  const bool ranks_given = environment.has_value() || args.ranks.given();
  ConfigRules rules;
  if (environment) rules.except.emplace_back("ranks");
  COPUS_TRY_VOID(read_config(args, path, From::kRun, rules));
  const bool ends_adapting =
      args.adapt.adapt.from() == From::kCommandLine && *args.adapt.adapt == Adapt::kOff;
  if (ends_adapting && config_value(path, "adapt").value_or("off") != "off") {
    COPUS_TRY(const int ranks, wanted_ranks(args, environment));
    stay_where_it_is(args, ranks);
  }
  if (!ranks_given || args.plan.from() == From::kCommandLine || !args.plan.known()) return {};
  COPUS_TRY(const int ranks, wanted_ranks(args, environment));
  const Result<PartialPlan> plan = load_partial_plan(*args.plan, "--plan");
  if (plan && plan->plan.gpus() != ranks) args.plan.forget();
  return {};
}

std::vector<OptionChange> changed_options(const std::string& run_dir, const std::string& config) {
  const std::string path = config_path(run_dir);
  const auto text = read_whole_file(path, "TOML", kMaxConfigBytes);
  // What read_resumed_config() could not read is refused there; an import has no file.
  if (!text) return {};
  const auto before = read_option_texts(*text, path);
  const auto after = read_option_texts(config, path);
  if (!before || !after) return {};
  std::vector<OptionChange> changes;
  for (const auto& [name, value] : *before) {
    const auto now = after->find(name);
    const std::string is = now == after->end() ? "" : now->second;
    if (is != value) changes.push_back({name, value, is});
  }
  for (const auto& [name, value] : *after) {
    if (!before->contains(name)) changes.push_back({name, "", value});
  }
  return changes;
}

std::optional<ModelSpec> resumed_model(const std::string& run_dir) {
  const std::optional<Manifest> newest = newest_manifest(run_dir);
  if (!newest) return std::nullopt;
  return newest->model;
}

Result<void> check_new(const std::string& run_dir) {
  // Not checked here: events of an earlier run, which RunDirectory refuses.
  std::error_code failed;
  if (std::filesystem::file_size(run_dir + "/events.jsonl", failed) > 0 && !failed) return {};
  const auto found = list_checkpoints(run_dir);
  if (!found || found->empty()) return {};
  return field_error("--run-dir",
                     "got {}, which holds the checkpoint {}; want --resume to go on from it, or "
                     "another directory",
                     run_dir, std::filesystem::path(found->back().folder).filename().string());
}

}  // namespace copus
