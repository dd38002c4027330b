// copus compare: its arguments, and the types that its parts exchange.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "apps/copus/args/policy_args.h"
#include "apps/copus/common.h"
#include "copus/sim/comparison.h"
#include "copus/sim/policies.h"
#include "copus/sim/sim_job.h"

namespace copus {

constexpr std::int64_t kUsualStartBatch = 16;

// How the progress of a step depends on its batch in the simulated world.
enum class LawKind {
  kCriticalBatch,  // 1 / (1 + critical batch / batch)
  kLrAware,        // the same x sqrt(batch / first batch)
};
inline constexpr std::array kLawKinds = {LawKind::kCriticalBatch, LawKind::kLrAware};
inline std::string_view to_string(LawKind law) {
  return law == LawKind::kLrAware ? "lr-aware" : "critical-batch";
}

// Options of the simulated world.
struct WorldArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<std::vector<std::string>> from{
      this, "--from", list_of(text("FOLDER")),
      "run directories from which loss curve, critical batch and step times are taken"};
  Option<LawKind> law{this, "--law", one_of(kLawKinds),
                      "a step's progress, by its batch: critical-batch is 1 / (1 + critical "
                      "batch / batch); lr-aware is that x the square root of batch / first "
                      "batch",
                      LawKind::kCriticalBatch};
  Option<double> step_error{
      this, "--step-error", number(0, 2),
      "standard deviation of true / predicted step time between layouts, as a share: 0.1 is 10%",
      0};
  Option<double> true_calibration{this, "--true-calibration", number(1e-3, 1e6),
                                  "true ratio of critical batch to noise scale",
                                  Otherwise{"--calibration, or 2"}};
  Option<double> noise_rank{
      this, "--noise-rank", number(2, 1e12),
      "rank of the gradient's noise; with a lower rank its measured norms scatter more",
      World().noise_rank};
  Option<double> loss_noise{this, "--loss-noise", number(0, 100),
                            "standard deviation of the loss from sample to sample, in nats",
                            World().loss_noise};
  Option<Seconds> pause{this, "--pause", duration(), "time that each change of layout takes",
                        Otherwise{"as predicted"}};
  Option<Seconds> failures_every{this, "--failures-every", duration(), "mean time between failures",
                                 Otherwise{"none"}};
  Option<Seconds> save_every{this, "--save-every", duration(), "time between checkpoints",
                             FailureOptions().checkpoint_every};
  Option<Seconds> save_cost{this, "--save-cost", duration(),
                            "time that the run waits for a checkpoint", Otherwise{"none"}};
  Option<Seconds> restart{this, "--restart", duration(), "time from a failure to the next step",
                          FailureOptions().restart};
};

struct LiveArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<std::string> run_dir{this, "--run-dir", text("FOLDER"),
                              "folder in which each run gets its run directory",
                              Otherwise{"runs/compare-TIME"}};
  Option<Seconds> limit{this, "--limit", duration(), "longest time of one run", Seconds(600)};
};

struct CompareArgs : OptionGroup {
  Option<std::string> config{
      this,         "--config",
      text("FILE"), "a run's TOML file; its table [compare] holds this command's own options",
      {},           InFile::kNo};
  Option<bool> simulate{this, "--simulate", flag(),
                        "simulate the runs in virtual time with the cost model; needs no GPU",
                        false};
  Option<std::vector<std::string>> policies{
      this, "--policies", list_of(text("NAME"), ','),
      fmt::format("the policies to compare (see docs/comparing.md), of {}",
                  fmt::join(policy_names(), ", ")),
      Otherwise{fmt::format("with --simulate: {}; live: {}", fmt::join(default_policies(), ", "),
                            fmt::join(default_live_policies(), ", "))}};
  Option<std::vector<double>> losses{this, "--losses", list_of(number(0, 1e6), ','),
                                     "losses to reach, in nats",
                                     Otherwise{"5, 4.5, 4, 3.5, 3; live: required"}};
  Option<std::int64_t> seeds{this, "--seeds", integer(1, 1000), "runs of each policy",
                             Otherwise{"5; live 3"}};
  Option<std::string> plot{this, "--plot", text("FILE"),
                           "draw loss, batch and layout over time into this SVG file"};
  Option<std::int64_t> window{this, "--window", integer(1, 1 << 30),
                              "a run's loss is the mean over this many samples", 1024};
  LiveArgs live{this, "Live"};
  JobArgs job{this, Otherwise{"required, here or in --config"}, kUsualStartBatch,
              "sequences per step; adapting runs begin with it"};
  PolicyArgs policy{this, kAdapting, kFromTheStart};
  WorldArgs world{this, "The simulated world"};
};

// The result, with what a reader needs to know about how the runs were made.
struct CompareReport {
  Comparison comparison;
  std::string title;                 // "llama-3.2-3b on 1x8xH100-80GB-SXM"
  std::vector<std::string> assumed;  // one line each
  std::int64_t seeds = 1;
};

Result<CompareReport> simulate_comparison(const CompareArgs& args, std::int64_t seeds);
// `program`: the path of this program, whose `train` runs each policy and seed. `stopped_by`: set
// to the signal that ended the comparison and its active run; 0 if no signal did.
Result<CompareReport> live_comparison(const CompareArgs& args, std::int64_t seeds,
                                      const std::string& program, int& stopped_by);

std::string compare_text(const CompareReport& report);
Json compare_json(const CompareReport& report);

}  // namespace copus
