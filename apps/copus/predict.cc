// copus predict: prices one plan.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "apps/copus/trace.h"
#include "copus/base/text.h"

namespace copus {
namespace {

struct PredictArgs : OptionGroup {
  JobArgs job{this, Required()};
  PlanOption plan{this};
  Option<std::string> trace{this, "--trace", text("FILE"),
                            "write the step's timeline for Perfetto to this file"};
};

// Returns a sentence that says how much memory a plan that does not fit needs, and what to try
// against the largest part of it.
std::string misfit_sentence(const StepModel& model, const ParallelPlan& plan,
                            const StepEstimate& estimate) {
  const MemoryBreakdown& m = estimate.memory;
  const Bytes activations = m.activations + m.logits;
  std::string advice;
  if (activations > m.weights + m.gradients + m.optimizer) {
    advice = plan.recompute != Recompute::kFull ? "recompute=full"
             : plan.micro_batch > 1             ? "a smaller micro_batch"
                                                : "more tp (with sp=1) or cp";
  } else {
    advice = plan.zero == 0 && plan.dp * plan.cp > 1 ? "zero=1" : "more tp or pp";
  }
  return fmt::format(
      "does not fit: pipeline rank {} needs {:.1f} GiB ({:.1f} state, {:.1f} activations and "
      "logits) of {:.1f}; try {}",
      estimate.memory_rank, to_gib(m.total()),
      to_gib(m.weights + m.gradients + m.optimizer + m.buffers), to_gib(activations),
      to_gib(model.capacity()), advice);
}

void print_text(const Workload& job, const StepModel& model, const ParallelPlan& plan,
                const StepEstimate& e) {
  fmt::print("{}\nplan {}\n\n", describe(job), describe_plan(job, plan));
  fmt::print("step time {}   {:.0f} tokens/s/GPU   MFU {:.1f}%\n", human_seconds(e.time.v),
             model.tokens_per_s_per_gpu(e.time), 100 * model.mfu(e.time));
  fmt::print("[{}]\n", time_bar(e.breakdown, 60));
  const Json json = estimate_to_json(model, e);
  std::vector<std::vector<std::string>> rows;
  for (const StepPart& part : kStepParts) {
    const Seconds time = e.breakdown.*part.time;
    if (time < Seconds(1e-9))
      continue;  // also skips the rounding error of a pipeline with one stage
    rows.push_back(
        {std::string(part.name), human_seconds(time), fmt::format("{:.1f}%", 100 * time / e.time)});
  }
  fmt::print("{}\n", format_table({"time", "seconds", "share"}, rows));
  rows.clear();
  for (const auto& [key, value] : json["memory"].items()) {
    if (!key.ends_with("_gib") || key == "capacity_gib" || value.get<double>() == 0) continue;
    rows.push_back({key.substr(0, key.size() - 4), fmt::format("{:.2f}", value.get<double>())});
  }
  rows.push_back({"total", fmt::format("{:.2f}", to_gib(e.memory.total()))});
  fmt::print("{}\n",
             format_table({fmt::format("memory of pipeline rank {}", e.memory_rank), "GiB"}, rows));
  if (e.memory.total() <= model.capacity()) {
    fmt::print("fits: {:.1f} of {:.1f} GiB\n", to_gib(e.memory.total()), to_gib(model.capacity()));
  } else {
    fmt::print("{}\n", misfit_sentence(model, plan, e));
  }
}

int run_predict(const PredictArgs& args) {
  const std::string trace_file = args.trace.value_or("");
  if (const auto one = check_output_paths({{"--trace", trace_file}}, *args.job.json); !one) {
    return report(one.error());
  }
  const Result<Workload> job = load_job(args.job);
  if (!job) return report(job.error());
  const Result<ParallelPlan> plan = load_plan(*args.plan, *job);
  if (!plan) return report(plan.error());
  const StepModel model = step_model(*job);
  const StepEstimate estimate = model.predict(*plan);
  if (!trace_file.empty()) {
    const Result<std::string> trace = step_trace(model, *plan, estimate);
    if (!trace) return report(trace.error());
    if (const Result<void> written = write_file(trace_file, *trace); !written)
      return report(written.error());
    if (trace_file == "-") return kOk;  // print only the trace, for a pipe
  }
  if (*args.job.json) {
    Json json;
    json["plan"] = plan_to_json(*plan);
    json["estimate"] = estimate_to_json(model, estimate);
    json["assumed"] = options_to_json(job->options);
    fmt::print("{}\n", json.dump(2));
  } else {
    print_text(*job, model, *plan, estimate);
    if (!trace_file.empty())
      fmt::print("timeline written to {}; open it at ui.perfetto.dev\n", trace_file);
  }
  return kOk;
}

}  // namespace

void add_predict_command(CommandLine& line) {
  line.add<PredictArgs>(
      {"predict", "Price one plan: time, memory and communication of a step",
       "copus predict --model llama-3-70b --cluster 8x8xH100-80GB-SXM --global-batch 128 --plan "
       "tp=8,pp=4,zero=1,sp=1 --trace step.json"},
      run_predict);
}

}  // namespace copus
