// What the subcommands share: the job's arguments, how they become specs, how errors and estimates
// are printed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// Numbers stay text until load_job, so that a bad one gets our message, not a library's.
struct JobArgs {
  std::string model;
  std::string cluster;
  std::string seq_len;
  std::string global_batch;
  std::string precision;
  std::string framework;
  std::string assume;
  bool json = false;
};

struct Workload {
  ModelSpec model;
  ClusterSpec cluster;
  FrameworkProfile framework;
  CostOptions options;  // the framework's, what was assumed beside them, and the precision
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;
};

// Refuses "" as an option's value: it is a shell variable that was not set, not a wish for the
// default.
const CLI::Validator& not_empty();

// Adds --model, --cluster, --seq-len, --global-batch, --precision, --framework, --assume and
// --json. `required`: --model and --cluster must be on the command line.
void add_job_options(CLI::App& command, JobArgs& args, bool required = true,
                     const char* batch_help = "sequences per step (default: 1024)");
// `cluster`: this one, whatever --cluster says.
Result<Workload> load_job(const JobArgs& args,
                          const std::optional<ClusterSpec>& cluster = std::nullopt);

// "tp=2,pp=4", "tp2.pp4" or the path of a plan.json. `option` names the flag in errors. dp defaults
// to what is left of the cluster.
Result<ParallelPlan> load_plan(const std::string& text, const Workload& job);
Result<PartialPlan> load_partial_plan(const std::string& text, const char* option);

// "copus: error: …" on standard error; returns kBadInput.
int report(const Error& error);

// A path as it is found from every folder.
std::string from_anywhere(const std::string& path);

// write_whole_file(), or to standard output where `path` is "-".
Result<void> write_file(const std::string& path, const std::string& content);

// A path has room for one, and so has standard output ("-"), where JSON may go too.
struct OutputFile {
  const char* option;
  std::string_view path;
};
Result<void> check_output_paths(std::initializer_list<OutputFile> files, bool json);

Json estimate_to_json(const StepModel& model, const StepEstimate& estimate);
// "llama-3-70b (70.6B parameters) on 64x8xH100-80GB-SXM …", two lines.
// `batch` replaces "batch 1024" where there is no one batch.
std::string describe(const Workload& job, const std::string& batch = "");
// Its short name, and how it is cut where that is unusual.
std::string describe_plan(const Workload& job, const ParallelPlan& plan);
// The step's parts as `width` letters: CCCCCCTTTPPD. See bar_legend().
std::string time_bar(const StepBreakdown& breakdown, int width);
std::string bar_legend();

// One per subcommand file. The callback sets `exit_code`.
void add_plan_command(CLI::App& app, int& exit_code);
void add_predict_command(CLI::App& app, int& exit_code);
void add_traffic_command(CLI::App& app, int& exit_code);
void add_validate_command(CLI::App& app, int& exit_code);
void add_data_command(CLI::App& app, int& exit_code);
void add_checkpoint_command(CLI::App& app, int& exit_code);
// `argv`: this process's program (by its path) and arguments, which local ranks are started with.
void add_train_command(CLI::App& app, int& exit_code, const std::vector<std::string>& argv);
// Goes on as the program that has the engine, with the same arguments. Returns where this is that
// program, or where there is none.
void become_engine(const std::vector<std::string>& argv);
// `argv`: as for train, which a live comparison starts.
void add_compare_command(CLI::App& app, int& exit_code, const std::vector<std::string>& argv);
void add_completion_command(CLI::App& app, int& exit_code);

}  // namespace copus
