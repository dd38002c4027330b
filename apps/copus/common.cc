#include "apps/copus/common.h"

#include <fmt/format.h>

#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "copus/base/text.h"
#include "copus/base/to_stderr.h"
#include "copus/base/whole_file.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_config.h"
#include "copus/spec/plan_fields.h"

namespace copus {
namespace {

// Returns the profile that --framework names, or else the cluster file's, or else `otherwise`.
Result<FrameworkProfile> load_framework(const Option<std::string>& asked,
                                        const ClusterSpec& cluster, std::string_view otherwise) {
  if (asked.known()) return framework_profile(*asked);
  const Json& own = cluster.framework;
  if (own.is_string()) return framework_profile(own.get_ref<const std::string&>());
  if (!own.is_null() && !own.is_object()) {
    return error_in(
        fmt::format("cluster {}", cluster.name),
        field_error("framework", "got {}; want a name, as \"megatron\", or an object", own.dump()));
  }
  if (!own.is_null()) return framework_from_json(own, cluster.name + ": framework");
  return framework_profile(otherwise.empty() ? kDefaultFramework : otherwise);
}

}  // namespace

Result<Workload> load_job(const JobArgs& args, const std::optional<ClusterSpec>& cluster,
                          std::string_view framework) {
  Workload job;
  COPUS_TRY(job.model, load_model(*args.model));
  if (cluster) {
    job.cluster = *cluster;
  } else {
    COPUS_TRY(job.cluster, load_cluster(*args.cluster));
  }
  job.seq_len = args.seq_len.value_or(std::min(kUsualSeqLen, job.model.max_positions));
  if (job.model.positions == Positions::kLearned && job.seq_len > job.model.max_positions) {
    return field_error("--seq-len", "got {}; {} has learned positions for {} at most", job.seq_len,
                       job.model.name, job.model.max_positions);
  }
  job.global_batch = *args.global_batch;
  COPUS_TRY(job.framework, load_framework(args.framework, job.cluster, framework));
  job.framework_named =
      args.framework.known() || !job.cluster.framework.is_null() || !framework.empty();
  job.options = job.framework.options;
  const bool has_bf16 = job.cluster.gpu.peak(Precision::kBf16).v > 0;
  job.options.precision = args.precision.value_or(has_bf16 ? Precision::kBf16 : Precision::kFp16);
  COPUS_TRY_VOID(check_precision(job.cluster.gpu, job.options.precision));
  if (job.limits() != nullptr) {
    COPUS_TRY_VOID(check_engine_precision(*job.limits(), job.options.precision));
  }
  COPUS_TRY(job.options, apply_assumptions(job.options, args.assume.value_or("")));
  return job;
}

StepModel step_model(const Workload& job, std::int64_t global_batch) {
  return StepModel(job.model, job.cluster, job.seq_len, global_batch, job.options, job.limits());
}

Result<PartialPlan> load_partial_plan(const std::string& text, const char* option) {
  if (text.empty()) {
    return field_error(option,
                       "got an empty plan; want tp=2,pp=4, tp2.pp4 or the path of a plan.json");
  }
  const bool pairs = text.find('=') != std::string::npos;
  const bool path = text.find('/') != std::string::npos || text.ends_with(".json");
  if (pairs || !path) {
    Result<PartialPlan> plan = parse_plan_text(text, option);
    std::error_code failed;
    // Any other name is read as a plan.json if such a file exists, unless the name itself is a
    // plan.
    if (plan || pairs || !std::filesystem::exists(text, failed)) return plan;
  }
  COPUS_TRY(const Json json, read_json_file(text));
  return plan_from_json(json, text);
}

Result<void> fill_in_dp(PartialPlan& partial, std::int64_t ranks, std::string_view field,
                        const std::string& whose) {
  if (partial.has(PlanField::kDp)) return {};
  ParallelPlan& plan = partial.plan;
  const std::int64_t others = plan.tp * plan.cp * plan.pp;
  if (others > ranks || ranks % others != 0) {
    return field_error(field, "got tp*cp*pp = {} ({}*{}*{}); want a divisor of {}", others, plan.tp,
                       plan.cp, plan.pp, whose);
  }
  plan.dp = ranks / others;
  return {};
}

Result<ParallelPlan> load_plan(const std::string& text, const Workload& job) {
  COPUS_TRY(PartialPlan partial, load_partial_plan(text, "--plan"));
  const std::int64_t gpus = job.cluster.gpus();
  COPUS_TRY_VOID(
      fill_in_dp(partial, gpus, "plan", fmt::format("the cluster's {}", counted(gpus, "GPU"))));
  const ParallelPlan plan = with_settled_etp(std::move(partial.plan));
  COPUS_TRY_VOID(plan.validate(job.model, job.cluster, job.seq_len, job.global_batch,
                               job.options.stage_cut, job.limits()));
  COPUS_TRY_VOID(check_ring_attention(job.options, job.cluster.gpu, plan.cp));
  return plan;
}

int report(const Error& error) {
  // The error stays on one line, even if it quotes a value with line breaks.
  std::string line = error.message;
  for (char& c : line) c = std::iscntrl(static_cast<unsigned char>(c)) != 0 ? ' ' : c;
  to_stderr(fmt::format("copus: error: {}\n", line));
  return kBadInput;
}

std::string from_anywhere(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::absolute(path, failed);
  return failed ? path : whole.lexically_normal().string();
}

Result<void> write_file(const std::string& path, const std::string& content) {
  if (path == "-") {
    if (std::fwrite(content.data(), 1, content.size(), stdout) == content.size()) return {};
    const int reason = errno;
    std::clearerr(stdout);
    return make_error("standard output: cannot be written ({})", std::strerror(reason));
  }
  const Result<void> written = write_whole_file(path, content);
  if (written) return {};
  return make_error("{}; want a writable path with room for {}", written.error().message,
                    human_bytes(static_cast<double>(content.size())));
}

Result<void> check_output_paths(std::initializer_list<OutputFile> files, bool json) {
  for (const OutputFile* file = files.begin(); file != files.end(); ++file) {
    if (file->path.empty()) continue;
    if (json && file->path == "-") {
      return field_error(file->option, "got - with --json; want a file, or no --json");
    }
    for (const OutputFile* other = files.begin(); other != file; ++other) {
      if (other->path != file->path) continue;
      return field_error(file->option, "got {} with {} {}; want a file for one of them", file->path,
                         other->option, other->path);
    }
  }
  return {};
}

Json estimate_to_json(const StepModel& model, const StepEstimate& estimate) {
  Json json;
  json["step_time_s"] = estimate.time.v;
  json["tokens_per_s_per_gpu"] = model.tokens_per_s_per_gpu(estimate.time);
  json["mfu"] = model.mfu(estimate.time);
  json["peak_mem_gib"] = to_gib(estimate.memory.total());
  json["fits"] = estimate.memory.total() <= model.capacity();
  Json& parts = json["breakdown"];
  for (const StepPart& part : kStepParts) {
    parts[fmt::format("{}_s", part.name)] = (estimate.breakdown.*part.time).v;
  }
  const MemoryBreakdown& m = estimate.memory;
  json["memory"] = {
      {"weights_gib", to_gib(m.weights)},     {"gradients_gib", to_gib(m.gradients)},
      {"optimizer_gib", to_gib(m.optimizer)}, {"activations_gib", to_gib(m.activations)},
      {"logits_gib", to_gib(m.logits)},       {"buffers_gib", to_gib(m.buffers)},
      {"overhead_gib", to_gib(m.overhead)},   {"capacity_gib", to_gib(model.capacity())},
      {"pipeline_rank", estimate.memory_rank}};
  return json;
}

std::string describe(const Workload& job, const std::string& batch) {
  const std::string network =
      job.cluster.nodes > 1 ? fmt::format(", {:g} Gb/s per node",
                                          job.cluster.network.node_bandwidth / gigabits_per_s(1))
                            : "";
  const std::string by_analogy = job.framework.analogy.empty()
                                     ? ""
                                     : fmt::format("\n{} has the assumptions of {}, by analogy",
                                                   job.framework.title, job.framework.analogy);
  return fmt::format("{} ({} parameters) on {} ({}{})\n{} x {} tokens, {}", job.model.name,
                     human_count(static_cast<double>(job.model.total_params())), job.cluster.name,
                     counted(job.cluster.gpus(), "GPU"), network,
                     batch.empty() ? fmt::format("batch {}", job.global_batch) : batch, job.seq_len,
                     to_string(job.options.precision)) +
         by_analogy;
}

std::string describe_plan(const Workload& job, const ParallelPlan& plan) {
  return short_name(plan) +
         (plan.is_cut_by_work(job.options.stage_cut) ? ", stages cut by work" : "");
}

std::string time_bar(const StepBreakdown& breakdown, int width) {
  // Rounds by largest remainders, so that the letters fill the bar exactly.
  const double total = breakdown.total().v;
  std::string bar;
  double sum = 0;
  for (const StepPart& part : kStepParts) {
    sum += std::max(0.0, (breakdown.*part.time).v);
    const auto upto = static_cast<std::size_t>(std::lround(sum / total * width));
    if (upto > bar.size()) bar.append(upto - bar.size(), part.letter);
  }
  return bar;
}

std::string bar_legend() {
  std::string legend;
  for (const StepPart& part : kStepParts)
    legend += fmt::format("{}{} {}", legend.empty() ? "" : "  ", part.letter, part.text);
  return legend;
}

}  // namespace copus
