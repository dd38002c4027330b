// copus compare: policies side by side to the same loss.
#include "apps/copus/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "apps/copus/config_file.h"
#include "copus/base/text.h"
#include "copus/sim/comparison_svg.h"

namespace copus {
namespace {

Result<int> run(CLI::App& command, CompareArgs& args, const std::vector<std::string>& argv,
                int& stopped_by) {
  std::vector<std::string> unused;
  ConfigRules rules;
  rules.others = &unused;
  if (!args.config.empty()) COPUS_TRY_VOID(apply_config(command, args.config, rules));
  COPUS_TRY_VOID(check_output_paths({{"--plot", args.plot}}, args.job.json));
  std::int64_t seeds = args.simulate ? 5 : 3;
  if (!args.seeds.empty()) {
    COPUS_TRY(seeds, parse_integer(args.seeds, "--seeds", 1, 1000));
  }
  COPUS_TRY(CompareReport report, args.simulate
                                      ? simulate_comparison(args, seeds)
                                      : live_comparison(args, seeds, argv.front(), stopped_by));
  if (args.simulate && !unused.empty()) {
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
          "copus-free-switch, oracle (default: the paper's, copus both ways, and the oracle; live: "
          "static, cbs-*, copus)")
      ->delimiter(',')
      ->check(not_empty());
  command
      ->add_option("--losses", a.losses,
                   "losses to reach, in nats (default: 5, 4.5, 4, 3.5, 3; live: required)")
      ->delimiter(',')
      ->check(not_empty());
  text("--seeds", a.seeds, "runs of each policy (default: 5, live 3)");
  text("--plot", a.plot, "loss, batch and layout over time, as SVG");
  const auto live = [&](const char* flag, std::string& value, const char* help) {
    return text(flag, value, help)->group("Live");
  };
  live("--run-dir", a.run_dir, "a folder for the runs, one each (default: runs/compare-TIME)");
  live("--limit", a.limit, "longest time of one run (default: 10m)");
  text("--window", a.window, "samples that a run's loss is the mean of (default: 1024)");
  add_job_options(*command, a.job, /*required=*/false,
                  "sequences per step where runs that adapt begin (default: 16)");
  add_policy_options(*command, a.policy);
  const auto world = [&](const char* flag, std::string& value, const char* help) {
    return text(flag, value, help)->group("The simulated world");
  };
  command
      ->add_option("--from", a.from,
                   "run directories: loss curve, critical batch and step times as recorded there")
      ->check(not_empty())
      ->group("The simulated world");
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
    int stopped_by = 0;
    const Result<int> code = run(*command, *args, argv, stopped_by);
    exit_code = code ? *code : report(code.error());
    if (!code && stopped_by != 0) exit_code = 128 + stopped_by;
  });
}

}  // namespace copus
