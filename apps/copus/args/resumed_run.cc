#include "apps/copus/args/resumed_run.h"

#include <fmt/ranges.h>

#include <filesystem>

#include "apps/copus/common.h"
#include "copus/args/config_file.h"
#include "copus/events/event_log.h"
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

// Keeps a run that stops adapting at the plan and batch of its newest checkpoint. Its config.toml
// has the plan and batch that it began with.
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

// Earlier versions wrote a plan as "tp=2,pp=4" with all its parts.
void write_as_printed(Option<std::string>& plan) {
  if (!plan.known()) return;
  if (const auto parsed = parse_plan_text(*plan, "--plan")) {
    plan.write_as(short_name(parsed->plan));
  }
}

// Returns the option's value as config.toml has it; empty if the file does not have the option.
std::string text_in_file(const AnyOption& option) {
  const std::optional<Json> value = option.written();
  return value ? fmt::format("{}", fmt::join(spelled(*value), ",")) : "";
}

}  // namespace

Result<void> read_resumed_config(TrainArgs& args,
                                 const std::optional<RankEnvironment>& environment) {
  if (!*args.checkpoint.resume) return {};
  if (!args.run_dir.known())
    return field_error("--run-dir", "missing; want the directory of the run to resume");
  const std::string path = config_path(*args.run_dir);
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) {
    // This is an imported model, or a run that ended before its first step.
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
  if (ends_adapting) {
    TrainArgs before;
    COPUS_TRY_VOID(read_config(before, path, From::kRun));
    if (*before.adapt.adapt != Adapt::kOff) {
      COPUS_TRY(const int ranks, wanted_ranks(args, environment));
      stay_where_it_is(args, ranks);
    }
  }
  if (!ranks_given || args.plan.from() == From::kCommandLine || !args.plan.known()) return {};
  COPUS_TRY(const int ranks, wanted_ranks(args, environment));
  const Result<PartialPlan> plan = load_partial_plan(*args.plan, "--plan");
  if (plan && plan->plan.gpus() != ranks) args.plan.forget();
  return {};
}

std::vector<OptionChange> changed_options(const std::string& run_dir, const TrainArgs& args) {
  TrainArgs before;
  // An imported model has no config.toml; read_resumed_config() has refused a file that it cannot
  // read.
  if (!read_config(before, config_path(run_dir), From::kRun)) return {};
  write_as_printed(before.plan);
  std::vector<OptionChange> changes;
  for (const AnyOption* option : args.options()) {
    const AnyOption& old = *before.find(option->name());
    // A default that the file lacks is not a change: an earlier version may have written the file.
    // The run's directory may have another spelling.
    if ((!old.given() && !option->given()) || option == &args.run_dir) continue;
    const std::string from = old.given() ? text_in_file(old) : "";
    const std::string to = text_in_file(*option);
    if (from != to) changes.push_back({option->name(), from, to});
  }
  return changes;
}

std::optional<ModelSpec> resumed_model(const std::string& run_dir) {
  const std::optional<Manifest> newest = newest_manifest(run_dir);
  if (!newest) return std::nullopt;
  return newest->model;
}

Result<void> check_no_checkpoints(const std::string& run_dir) {
  // RunDirectory refuses the events of an earlier run, so they need no check here.
  std::error_code failed;
  if (std::filesystem::file_size(events_path(run_dir), failed) > 0 && !failed) return {};
  const auto found = list_checkpoints(run_dir);
  if (!found || found->empty()) return {};
  return field_error("--run-dir",
                     "got {}, which holds the checkpoint {}; want --resume to go on from it, or "
                     "another directory",
                     run_dir, std::filesystem::path(found->back().folder).filename().string());
}

}  // namespace copus
