// What the subcommands share: the job's options, their conversion to specs, and the output of
// errors and estimates.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/copus/args/shared_options.h"
#include "copus/args/option.h"
#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/cost/framework.h"
#include "copus/cost/step.h"
#include "copus/spec/cluster_spec.h"
#include "copus/spec/model_spec.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

constexpr int kOk = 0;
constexpr int kAnswerIsNo = 1;
constexpr int kBadInput = 2;

constexpr std::int64_t kMaxGlobalBatch = 1'000'000'000;

constexpr std::int64_t kUsualSeqLen = 4096;

struct JobArgs : OptionGroup {
  // `needed`: says in --help that --model and --cluster have no default.
  JobArgs(OptionGroup* whole, const Default<std::string>& needed, std::int64_t batch = 1024,
          const char* batch_help = "sequences per step, over all replicas")
      : OptionGroup(whole, "The job"),
        model{this, needed},
        cluster{this, "", needed},
        global_batch{this, kMaxGlobalBatch, batch, batch_help} {}

  ModelOption model;
  ClusterOption cluster;
  SeqLenOption seq_len{this, 100'000'000, kUsualSeqLen};
  GlobalBatchOption global_batch;
  PrecisionOption<Precision> precision{this, kPrecisions,
                                       Otherwise{"bf16 where the GPU has it, else fp16"}};
  FrameworkOption framework{this, "", Otherwise{"the cluster file's, or megatron"}};
  AssumeOption assume{this};
  JsonOption json{this};
};

struct Workload {
  ModelSpec model;
  ClusterSpec cluster;
  FrameworkProfile framework;
  CostOptions options;           // the framework's, with --assume and --precision applied
  bool framework_named = false;  // by --framework, the cluster file or --emit
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;

  // The limits of the framework that the user named; null: none was named, or it has none.
  const EngineLimits* limits() const {
    return framework_named && framework.limits ? &*framework.limits : nullptr;
  }
};

// Returns the job's model at this batch. REQUIRES: `job` outlives the result.
StepModel step_model(const Workload& job, std::int64_t global_batch);
inline StepModel step_model(const Workload& job) { return step_model(job, job.global_batch); }

// Loads the job that `args` describes. `cluster`: used instead of --cluster, if given.
// `framework`: used if neither --framework nor the cluster file names one; empty: the default.
Result<Workload> load_job(const JobArgs& args,
                          const std::optional<ClusterSpec>& cluster = std::nullopt,
                          std::string_view framework = "");

// `text` is "tp=2,pp=4", "tp2.pp4" or the path of a plan.json. `option` names the flag in errors.
// dp defaults to the number of GPUs / (tp cp pp).
Result<ParallelPlan> load_plan(const std::string& text, const Workload& job);
Result<PartialPlan> load_partial_plan(const std::string& text, const char* option);
// Sets dp to ranks / (tp cp pp) if the plan does not state it. The error names `field` and `whose`
// ("the cluster's 8 GPUs").
Result<void> fill_in_dp(PartialPlan& partial, std::int64_t ranks, std::string_view field,
                        const std::string& whose);

// Prints "copus: error: …" on standard error; returns kBadInput.
int report(const Error& error);

// Returns the absolute path, which works from every folder.
std::string from_anywhere(const std::string& path);

// Like write_whole_file(), but "-" means standard output.
Result<void> write_file(const std::string& path, const std::string& content);

// Refuses two outputs to one path. Standard output ("-") counts as one path, and --json uses it.
struct OutputFile {
  const char* option;
  std::string_view path;
};
Result<void> check_output_paths(std::initializer_list<OutputFile> files, bool json);

Json estimate_to_json(const StepModel& model, const StepEstimate& estimate);
// Returns two lines: "llama-3-70b (70.6B parameters) on 64x8xH100-80GB-SXM …" and the batch; a
// third if the framework's costs are by analogy to another's. `batch`: text instead of "batch
// 1024", for a job of several batches.
std::string describe(const Workload& job, const std::string& batch = "");
// Returns the plan's short name, with a note if stages are cut by work.
std::string describe_plan(const Workload& job, const ParallelPlan& plan);
// Returns the parts of the step as a bar of `width` letters: CCCCCCTTTPPD. bar_legend() explains
// the letters.
std::string time_bar(const StepBreakdown& breakdown, int width);
std::string bar_legend();

}  // namespace copus
