// copus compare without --simulate: trains each policy for real, one after another, on the same
// samples, until the loss is low enough.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "apps/copus/args/train_args.h"
#include "apps/copus/compare.h"
#include "apps/copus/compare_run.h"
#include "copus/base/text.h"
#include "copus/base/to_stderr.h"
#include "copus/base/utc_stamp.h"
#include "copus/base/whole_file.h"

namespace copus {
namespace {

std::string layout_text(const RecordedRun& run) {
  if (run.steps().empty()) return "";
  return short_name(run.steps().front().plan, {PlanField::kMicroBatch});
}

// Copies to `train` the options that both commands have, except those that differ from run to run.
// A run that makes no decisions gets no options for decisions, and copus-2026 none that it sets.
Result<void> pass_on(const CompareArgs& args, const Policy& policy, TrainArgs& train) {
  const bool decides = policy.rule != Rule::kStatic;
  for (const AnyOption* option : args.options()) {
    AnyOption* same = train.find(option->name());
    if (!option->given() || same == nullptr) continue;
    if (option == &args.config || option == &args.live.run_dir || option == &args.job.json ||
        option == &args.job.global_batch || option == &args.policy.decisions.batches) {
      continue;
    }
    if (!decides && args.policy.decisions.find(option->name()) != nullptr) continue;
    if (policy.rules == Rules::kCopus2026 && is_published(args.policy, option)) continue;
    COPUS_TRY_VOID(same->read(spelled(option->value()), From::kCommandLine, option->flag()));
  }
  return {};
}

// Gives `train` the options of a run of the policy. `late_plan`: the layout of the static policy
// at the largest batch; empty: not known yet.
Result<void> ask_for_policy(const CompareArgs& args, const LiveOptions& o, const Policy& policy,
                            const std::string& late_plan, TrainArgs& train) {
  if (policy.rule == Rule::kOracle || policy.free_switch) {
    return field_error(
        "--policies", "got {}; want --simulate with it: it exists only in simulation", policy.name);
  }
  if (policy.rule == Rule::kCbsOptimistic && late_plan.empty()) {
    return field_error("--policies",
                       "got cbs-optimistic; want a static:BATCH before it: it takes its layout "
                       "from the one with the largest batch");
  }
  const bool decides = policy.rule != Rule::kStatic;
  COPUS_TRY_VOID(pass_on(args, policy, train));
  give(train.adapt.adapt, policy.adapt);
  give(train.global_batch, decides ? o.start_batch : policy.batch);
  if (decides) give(train.adapt.policy.decisions.batches, o.batches);
  if (!decides) give(train.plan, kBestPlan);
  if (policy.rule == Rule::kCbsOptimistic) give(train.plan, late_plan);
  if (policy.goodput) give(train.adapt.policy.goodput, *policy.goodput);
  if (policy.rules != Rules::kCopus) give(train.adapt.rules, policy.rules);
  if (o.measured_cluster) give(train.adapt.cluster, *o.measured_cluster);
  return {};
}

Result<LiveOptions> resolve_live(const CompareArgs& args, const std::string& program) {
  LiveOptions o;
  o.program = program;
  if (!args.config.given()) {
    return field_error("--config", "missing; want a run's TOML file (or --simulate)");
  }
  o.config = *args.config;
  o.start_batch = *args.job.global_batch;
  o.window = *args.window;
  o.losses = args.losses.value_or({});
  if (o.losses.empty())
    return field_error("--losses", "missing; want the losses that the runs are to reach, as 3,2.5");
  std::sort(o.losses.begin(), o.losses.end(), std::greater<>());
  o.limit = *args.live.limit;
  COPUS_TRY(o.batches, resolve_batches(args.policy.decisions, o.start_batch));
  o.folder = args.live.run_dir.known() ? *args.live.run_dir : "runs/compare-" + utc_stamp();
  return o;
}

Result<void> make_folder(const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return field_error("--run-dir", "got {}; {}", folder, failed.message());
  if (!std::filesystem::is_empty(folder, failed)) {
    return field_error("--run-dir", "got {}, which is not empty; want a new folder", folder);
  }
  return {};
}

// Returns the flags that were given to a live comparison but matter only to a simulated one.
std::string not_used(const CompareArgs& args) {
  std::vector<const AnyOption*> options = {&args.job.framework, &args.job.assume};
  options.insert(options.end(), args.world.options().begin(), args.world.options().end());
  std::erase_if(options, [](const AnyOption* option) { return !option->given(); });
  std::vector<std::string> flags;
  for (const AnyOption* option : options) flags.push_back(option->flag());
  return fmt::format("{}", fmt::join(flags, ", "));
}

// All runs use the first run's measurement of the machine. Otherwise the choice of layouts could
// differ between policies because the machine was more or less busy.
Result<void> share_cluster(const CompareArgs& args, const RecordedRun& run, LiveOptions& o) {
  if (args.job.cluster.given() || o.measured_cluster) return {};
  if (!run.start() || !run.start()->cluster) return {};
  const std::string path = o.folder + "/cluster.json";
  COPUS_TRY_VOID(write_whole_file(path, cluster_to_json(*run.start()->cluster).dump(2) + "\n"));
  o.measured_cluster = path;
  return {};
}

Result<CompareReport> compare_live(const CompareArgs& args, std::int64_t seeds,
                                   const std::string& program, Stop& stop) {
  COPUS_TRY(LiveOptions o, resolve_live(args, program));
  const std::vector<std::string> names = args.policies.value_or(default_live_policies());
  COPUS_TRY(const std::vector<Policy> policies,
            parse_policies(names, batch_ladder(o.batches.lowest, o.batches.highest)));
  for (const Policy& policy : policies) o.late_batch = std::max(o.late_batch, policy.batch);
  for (const Policy& policy : policies) {
    TrainArgs unused;
    COPUS_TRY_VOID(ask_for_policy(args, o, policy, "any", unused));
  }
  COPUS_TRY_VOID(make_folder(o.folder));

  std::vector<std::vector<SimOutcome>> runs(policies.size());
  std::string late_plan;
  // The policies of one seed run one after another, so that other load on the machine affects them
  // alike.
  for (std::int64_t seed = 1; seed <= seeds; ++seed) {
    for (std::size_t p = 0; p < policies.size(); ++p) {
      TrainArgs train;
      COPUS_TRY_VOID(ask_for_policy(args, o, policies[p], late_plan, train));
      COPUS_TRY(const RecordedRun run, train_live(o, policies[p].name, seed, train, stop));
      if (policies[p].rule == Rule::kStatic && policies[p].batch == o.late_batch)
        late_plan = layout_text(run);
      COPUS_TRY_VOID(share_cluster(args, run, o));
      runs[p].push_back(run.outcome());
      const SimOutcome& outcome = runs[p].back();
      to_stderr(fmt::format(
          "seed {}  {:18} {}, {}, {}\n", seed, policies[p].name,
          outcome.reached ? fmt::format("{:.1f} s", outcome.crossings.back().t.v)
                          : fmt::format("not reached (loss {:.3f})", run.smoothed()),
          counted(outcome.samples, "sample"),
          outcome.switches == 1 ? "1 switch" : fmt::format("{} switches", outcome.switches)));
    }
  }
  CompareReport report;
  report.comparison = compare(policies, runs, o.losses);
  report.title = fmt::format("{}, live", o.config);
  report.seeds = seeds;
  report.assumed.push_back(fmt::format(
      "a run's loss is the mean over its last {} samples, each seen for the first time", o.window));
  report.assumed.push_back(fmt::format(
      "learning rate: the file's at batch {}, by the square-root rule at others", o.start_batch));
  report.assumed.push_back(fmt::format("the runs are in {}", o.folder));
  if (const std::string unused = not_used(args); !unused.empty()) {
    report.assumed.push_back("not used without --simulate: " + unused);
  }
  return report;
}

}  // namespace

Result<CompareReport> live_comparison(const CompareArgs& args, std::int64_t seeds,
                                      const std::string& program, int& stopped_by) {
  Stop stop;
  COPUS_TRY_VOID(stop.open());
  Result<CompareReport> report = compare_live(args, seeds, program, stop);
  stopped_by = stop.signal();
  return report;
}

}  // namespace copus
