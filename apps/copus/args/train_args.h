// copus train's options, and their conversion to a run. Nothing here needs the engine, so every
// program can read them and refuse what cannot be trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/copus/args/adapt_args.h"
#include "apps/copus/args/checkpoint_args.h"
#include "apps/copus/args/failure_args.h"
#include "apps/copus/args/shared_options.h"
#include "copus/train/launch/environment.h"

namespace copus {

constexpr std::int64_t kMostTrainBatch = 1 << 30;
constexpr std::int64_t kMostUsualTrainSeqLen = 512;

struct LimitArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<std::int64_t> steps{this, "--steps", integer(1, kMany), "stop after this many steps"};
  Option<std::int64_t> samples{this, "--samples", integer(1, kMany),
                               "stop after this many samples, rounded up to whole steps"};
  Option<double> until_loss{
      this, "--until-loss", number(0, 1e6),
      "stop at this loss (held-out loss with --eval-every); exit code 1 if it is not reached"};
  Option<Seconds> for_time{
      this, "--for", duration(),
      "stop after this time, as 90s, 10m or 2h, counted from the first step after each start; "
      "the step that begins next is the last"};
};

struct OptimizerArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<double> lr{this, "--lr", number(0, 100), "peak learning rate", LrSchedule().peak};
  Option<std::int64_t> base_batch{this, "--base-batch", integer(1, kMostTrainBatch),
                                  "the batch that --lr is meant for; at another batch --lr is "
                                  "scaled by the square root of their ratio",
                                  Otherwise{"--global-batch"}};
  // config.toml has only a given value: the default depends on --lr, which a resumed run may
  // change.
  Option<double> min_lr{this,
                        "--min-lr",
                        number(0, 100),
                        "lowest learning rate, at the end of the cosine",
                        Otherwise{"a tenth of --lr"},
                        InFile::kGiven};
  Option<std::int64_t> warmup_samples{
      this, "--warmup-samples", integer(0, kMany), "samples of linear warm-up",
      Otherwise{"2% of the run, if its length in samples is known"}};
  Option<std::int64_t> decay_samples{
      this, "--decay-samples", integer(0, kMany),
      "sample at which the cosine reaches its lowest rate",
      Otherwise{"the end of the run, if its length in samples is known; else no decay"}};
  Option<double> weight_decay{this, "--weight-decay", number(0, 10),
                              "weight decay of matrices; norms and biases have none",
                              AdamOptions().weight_decay};
  Option<double> beta1{this, "--beta1", number(0, 0.999999), "Adam's decay of the mean gradient",
                       AdamOptions().beta1};
  Option<double> beta2{this, "--beta2", number(0, 0.999999999),
                       "Adam's decay of the mean squared gradient", AdamOptions().beta2};
  Option<double> eps{this, "--eps", number(1e-20, 1),
                     "Adam's epsilon, added to the root of the mean squared gradient",
                     AdamOptions().eps};
  Option<double> clip{this, "--clip", number(0, 1e12), "largest gradient norm; 0 for none",
                      TrainerOptions().clip_norm};
};

struct MachineArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<DeviceKind> device{this, "--device", one_of(kDeviceKinds), "where ranks compute",
                            DeviceKind::kCpu};
  PrecisionOption<Compute> precision{this, kComputes, Otherwise{"fp32, on cuda bf16"},
                                     "; master weights are FP32"};
  Option<std::int64_t> bucket_mib{this, "--bucket-mib", integer(1, 1 << 14),
                                  "size of one bucket of gradients, in MiB",
                                  LayoutOptions().bucket_elements * 4 / (1 << 20)};
  Option<Seconds> timeout{
      this, "--timeout", duration(),
      "longest wait for another rank; four times as long for a rank that saves or loads",
      Seconds(300)};
  Option<std::int64_t> port{
      this,
      "--port",
      integer(1, 65535),
      "TCP port at which local ranks meet; it listens on every network interface",
      Otherwise{"they meet on a socket that only this user's processes on this machine can reach"},
      InFile::kRead};
};

struct EvaluationArgs : OptionGroup {
  using OptionGroup::OptionGroup;
  Option<double> held_out{this, "--held-out", number(0, 0.9),
                          "share of the data that is never trained on", RunOptions().held_out};
  Option<std::int64_t> every{this, "--eval-every", integer(1, kMany),
                             "steps between evaluations on held-out data", Otherwise{"never"}};
  Option<std::int64_t> samples{this, "--eval-samples", integer(1, kMany),
                               "held-out sequences per evaluation", RunOptions().eval_samples};
  Option<std::int64_t> noise_every{
      this, "--noise-every", integer(1, kMany),
      "steps between measurements of the gradient noise scale",
      Otherwise{"1 to 8: the fewest steps at which measuring takes less than 1% of the time"}};
};

struct TrainArgs : OptionGroup {
  Option<std::string> config{
      this, "--config", text("FILE"), "take options from this TOML file; the command line wins",
      {},   InFile::kNo};
  ModelOption model{this, Otherwise{"required, here or in --config"}};
  Option<std::vector<std::string>> data{this, "--data", list_of(text("FILE")),
                                        "builtin, or files: text, or Megatron-LM's .bin/.idx",
                                        RunOptions().data};
  Option<std::int64_t> ranks{this, "--ranks", integer(1, FailureArgs::kMostRanks),
                             "local processes to start", Otherwise{"1, or the launcher's"}};
  PlanOption plan{this, "PLAN|FILE|best",
                  "best: the plan predicted to be fastest; if parts are left out, dp is ranks / "
                  "(tp x pp), micro_batch is the largest of 8, 4, 2 and 1 that divides a replica's "
                  "share of the batch and is at most that share / pp, and others have their "
                  "defaults",
                  Otherwise{"dp over all ranks"}};
  GlobalBatchOption global_batch{this, kMostTrainBatch, 32};
  SeqLenOption seq_len{this, 1 << 20, kMostUsualTrainSeqLen};
  Option<std::int64_t> seed{this, "--seed", integer(0, kMany),
                            "seed of the initial weights and of the order of samples",
                            static_cast<std::int64_t>(LayoutOptions().seed)};
  Option<std::string> run_dir{this, "--run-dir", text("FOLDER"),
                              "folder for config.toml, events.jsonl and checkpoints; must not hold "
                              "an earlier run, unless --resume",
                              Otherwise{"runs/MODEL-TIME"}};
  JsonOption json{this, "print the outcome as JSON; progress goes to standard error"};
  LimitArgs limits{this, "The end of the run"};
  OptimizerArgs optimizer{this, "Learning rate and optimizer"};
  MachineArgs machine{this, "Device and communication"};
  EvaluationArgs evaluation{this, "Evaluation"};
  AdaptArgs adapt{this, kAdapting};
  CheckpointArgs checkpoint{this, "Checkpoints"};
  FailureArgs failures{this, "Failures"};
};

constexpr const char* kBestPlan = "best";

// Returns the number of ranks that the launcher started, or without a launcher the number that the
// arguments ask for. An error if the two differ.
Result<int> wanted_ranks(const TrainArgs& args, const std::optional<RankEnvironment>& environment);

// Converts `args` to a run, except for facts about the device (RunOptions::peak). Checks the
// options for `ranks` ranks on nodes with `local_ranks` each. Sets the values in `args` that follow
// from other options; RunOptions::config is the file of these complete options.
Result<RunOptions> resolve_run(TrainArgs& args, int ranks, int local_ranks);

// Returns the batch nearest to the trainer's that some layout of `ranks` ranks can train.
std::int64_t nearest_batch(const TrainerOptions& trainer, int ranks);

}  // namespace copus
