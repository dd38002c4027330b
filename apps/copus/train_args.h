// copus train's arguments, and how they become a run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/copus/adapt_args.h"
#include "apps/copus/checkpoint_args.h"
#include "apps/copus/failure_args.h"
#include "copus/train/launch/environment.h"
#include "copus/train/run/run.h"

namespace copus {

// The most steps or samples that an option takes.
constexpr std::int64_t kMany = 1'000'000'000'000;

// Text until resolved, so that a bad value gets our message.
struct TrainArgs {
  std::string config;
  std::string model;
  std::vector<std::string> data;
  std::string ranks, plan, global_batch, base_batch, seq_len;
  std::string steps, samples, until_loss, for_time;
  std::string lr, min_lr, warmup_samples, decay_samples, weight_decay, beta1, beta2, eps, clip;
  std::string seed, device, precision, noise_every, held_out, eval_every, eval_samples;
  std::string run_dir, timeout, port, bucket_mib;
  AdaptArgs adapt;
  FailureArgs failures;
  CheckpointArgs checkpoint;
  bool json = false;
};

void add_train_options(CLI::App& command, TrainArgs& args);

// Ranks that the arguments ask for, or those of the launcher that started this process.
Result<int> wanted_ranks(const TrainArgs& args, const std::optional<RankEnvironment>& environment);

// Everything but the device's own facts (RunOptions::peak). Checked for `ranks` on nodes of
// `local_ranks`.
Result<RunOptions> resolve_run(const TrainArgs& args, int ranks, int local_ranks);

// What the run was given and the defaults that decide what it computes, as TOML that --config
// reads.
std::string resolved_config(const RunOptions& run, const TrainArgs& args);

// The batch nearest to the run's that some layout of so many ranks can train with.
std::int64_t nearest_batch(const TrainerOptions& trainer, int ranks);

Result<double> collective_timeout_s(const TrainArgs& args);
Result<int> rendezvous_port(const TrainArgs& args);

}  // namespace copus
