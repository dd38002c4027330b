// copus compare: its arguments, and what its parts pass to each other.
#pragma once

#include <string>
#include <vector>

#include "apps/copus/common.h"
#include "apps/copus/policy_args.h"
#include "copus/sim/comparison.h"

namespace copus {

struct CompareArgs {
  JobArgs job;
  PolicyArgs policy;
  std::string config;
  bool simulate = false;
  std::vector<std::string> policies, losses;
  std::string seeds, plot, window;
  std::string run_dir, limit;     // live
  std::vector<std::string> from;  // recorded runs that the world is taken from
  // How the simulated world is.
  std::string law, step_error, true_calibration, noise_rank, pause;
  std::string failures_every, save_every, save_cost, restart;
};

// What was compared, for whoever reads the result.
struct CompareReport {
  Comparison comparison;
  std::string title;                 // "llama-3.2-3b on 1x8xH100-80GB-SXM"
  std::vector<std::string> assumed;  // a line each
  std::int64_t seeds = 1;
};

Result<CompareReport> simulate_comparison(const CompareArgs& args, std::int64_t seeds);
// `program`: this one, whose `train` is started for each policy and seed. `stopped_by`: the signal
// that ended it, and the run that was under way; 0: none.
Result<CompareReport> live_comparison(const CompareArgs& args, std::int64_t seeds,
                                      const std::string& program, int& stopped_by);

// Samples that a recorded run's loss is the mean of.
Result<std::int64_t> loss_window(const CompareArgs& args);

std::string compare_text(const CompareReport& report);
Json compare_json(const CompareReport& report);

}  // namespace copus
