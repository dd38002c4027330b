// copus plan: searches the best plans for a job and prints them.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "copus/base/standard_streams.h"
#include "copus/base/text.h"
#include "copus/base/to_stderr.h"
#include "copus/interop/megatron_args.h"
#include "copus/tuner/pins.h"
#include "copus/tuner/search.h"

namespace copus {
namespace {

// Plans whose times differ by less than this share are a near tie: it is the mean error of
// predictions for published steps of Megatron-LM (docs/accuracy.md).
constexpr double kNearTie = 0.03;

constexpr const char* kCutByWork =
    "Stages are cut by work, also inside layers: only for an engine that can do this.";

struct BatchSweep {
  std::int64_t from = 0, to = 0;
};

// The values of an option that takes a range of batches, as "16:4096".
Values<BatchSweep> batch_sweep() {
  return single<BatchSweep>(
      "FROM:TO",
      [](const std::string& text, const std::string& field) -> Result<BatchSweep> {
        const std::vector<std::string_view> ends = split(text, ':');
        if (ends.size() != 2) return field_error(field, "got '{}'; want FROM:TO, as 16:4096", text);
        BatchSweep sweep;
        COPUS_TRY(sweep.from, parse_integer(ends[0], field + " FROM", 1, kMaxGlobalBatch));
        COPUS_TRY(sweep.to, parse_integer(ends[1], field + " TO", 1, kMaxGlobalBatch));
        if (sweep.to < sweep.from) return field_error(field, "got {}; want FROM <= TO", text);
        return sweep;
      },
      [](const BatchSweep& sweep) -> Json { return fmt::format("{}:{}", sweep.from, sweep.to); });
}

struct PlanArgs : OptionGroup {
  JobArgs job{this, Required()};
  FixOption fix{this};
  Option<std::int64_t> micro_batches{
      this, "--micro-batches", integer(1, kMaxGlobalBatch),
      "pin the micro-batches per step and replica (steps of gradient accumulation)"};
  Option<std::int64_t> top{this, "--top", integer(1, 10'000), "how many plans to print", 10};
  Option<bool> variants{this, "--variants", flag(),
                        "rank every variant, not only the best of each (tp, cp, ep, etp, pp, dp)",
                        false};
  Option<BatchSweep> sweep_batch{
      this, "--sweep-batch", batch_sweep(),
      "print a table of the best plan at each batch FROM, 2 FROM, ... up to TO"};
  Option<std::string> emit{this, "--emit", word({"megatron"}),
                           "print only the best plan, as Megatron-LM's launch flags"};
};

constexpr const char* kBarTitle = "<where the time goes";

// Prints the plans as a table that fits the terminal. If the terminal is too narrow, the table
// leaves out the bar first, then the columns that follow from the step's time, then the memory.
// Returns whether it printed the bar, with its legend below.
bool print_plans(const char* label, const char* layout,
                 const std::vector<std::vector<std::string>>& rows) {
  const std::vector<std::string> titles = {label, layout, "step",   "tok/s/GPU",
                                           "MFU", "GiB",  kBarTitle};
  std::vector<std::string> dropped;
  const std::string table = format_table(titles, rows, output_columns(STDOUT_FILENO),
                                         {kBarTitle, "MFU", "tok/s/GPU", "GiB"}, &dropped);
  fmt::print("{}\n", table);
  if (dropped.empty()) fmt::print("{}\n", bar_legend());
  return dropped.empty();
}

std::vector<std::string> table_row(std::string label, const StepModel& model,
                                   const RankedPlan& entry) {
  const StepEstimate& e = entry.estimate;
  return {std::move(label),
          short_name(entry.plan),
          human_seconds(e.time.v),
          fmt::format("{:.0f}", model.tokens_per_s_per_gpu(e.time)),
          fmt::format("{:.1f}%", 100 * model.mfu(e.time)),
          fmt::format("{:.1f}", to_gib(e.memory.total())),
          time_bar(e.breakdown, 30)};
}

Json entry_to_json(const StepModel& model, const RankedPlan& entry) {
  Json json;
  json["plan"] = plan_to_json(entry.plan);
  json["estimate"] = estimate_to_json(model, entry.estimate);
  return json;
}

// Returns a note for users who gave --fix a whole layout and may not know that it pins every part;
// empty if --fix does not pin every part.
std::string note_on_pins(const SearchRequest& request) {
  if (request.fixed.given != PlanFields::all()) return "";
  return "; --fix got a whole layout, which pins every part: write tp=2,pp=4 to pin only some";
}

Error with_note(Error error, const SearchRequest& request) {
  error.message += note_on_pins(request);
  return error;
}

// Returns one sentence that says why the search found nothing: no layout divides the job, or no
// layout fits in memory.
std::string why_nothing(const StepModel& model, const SearchRequest& request,
                        const SearchResult& found) {
  if (!found.closest) {
    return fmt::format(
        "no layout is possible: the batch of {} must be divided by dp*micro_batch{}, tp must "
        "divide {} heads, pp at most {} "
        "layers, and what --fix pins must agree with that",
        model.global_batch(),
        request.micro_batches > 0 ? fmt::format(" into {} micro-batches", request.micro_batches)
                                  : "",
        model.model().heads, model.model().layers);
  }
  const RankedPlan& c = *found.closest;
  return fmt::format(
      "no layout of {} fits: {} comes closest with {:.1f} GiB of {:.1f} on pipeline rank {}{}",
      found.searched, short_name(c.plan), to_gib(c.estimate.memory.total()), to_gib(model.budget()),
      c.estimate.memory_rank, note_on_pins(request));
}

void print_search(const Workload& job, const StepModel& model, const SearchResult& found,
                  const std::optional<RankedPlan>& usual) {
  fmt::print("{}\n{} searched in {}, {} fit in {:.1f} GiB\n\n", describe(job),
             counted(found.searched, "plan"), human_seconds(found.search_time.v), found.feasible,
             to_gib(model.budget()));
  std::vector<std::vector<std::string>> rows;
  for (const RankedPlan& entry : found.plans)
    rows.push_back(table_row(std::to_string(rows.size() + 1), model, entry));
  if (print_plans("#", "<layout", rows)) fmt::print("\n");
  if (std::any_of(found.plans.begin(), found.plans.end(), [&](const auto& entry) {
        return entry.plan.is_cut_by_work(job.options.stage_cut);
      })) {
    fmt::print("{}\n", kCutByWork);
  }
  if (found.plans.size() > 1)
    fmt::print("{}.\n", explain_difference(found.plans[0], found.plans[1]));
  const auto close = std::count_if(found.plans.begin(), found.plans.end(), [&](const auto& plan) {
    return plan.estimate.time < found.plans[0].estimate.time * (1 + kNearTie);
  });
  if (close > 1) {
    fmt::print("The first {} are within {:.0f}%, less than the error of predictions: time them.\n",
               close, 100 * kNearTie);
  }
  if (!usual) {
    fmt::print(
        "Megatron-LM's usual rule (tp in the node, then pp, rest dp) finds nothing that fits and "
        "agrees with what is pinned.\n");
  } else if (usual->plan == found.plans[0].plan) {
    fmt::print(
        "Megatron-LM's usual rule (tp in the node, then pp, rest dp) picks the same plan.\n");
  } else {
    fmt::print(
        "Megatron-LM's usual rule (tp in the node, then pp, rest dp) would pick {}: {}, {:.2f}x as "
        "long.\n",
        short_name(usual->plan), human_seconds(usual->estimate.time.v),
        usual->estimate.time / found.plans[0].estimate.time);
  }
}

int run_sweep(const PlanArgs& args, const Workload& job, const SearchRequest& request) {
  std::vector<std::vector<std::string>> rows;
  Json json;
  json["sweep"] = Json::array();
  std::string last_layout;
  const BatchSweep& sweep = *args.sweep_batch;
  bool any = false, any_searched = false, cut_by_work = false;
  std::int64_t last_batch = sweep.from;
  for (std::int64_t batch = sweep.from; batch <= sweep.to; batch *= 2) {
    last_batch = batch;
    const StepModel model(job.model, job.cluster, job.seq_len, batch, job.options);
    const SearchResult found = search(model, request);
    any_searched = any_searched || found.searched > 0;
    Json point;
    point["global_batch"] = batch;
    if (found.plans.empty()) {
      rows.push_back({std::to_string(batch), "nothing fits or divides", "", "", "", "", ""});
      point["plan"] = nullptr;
      point["estimate"] = nullptr;
      point["why"] = why_nothing(model, request, found);
    } else {
      any = true;
      const RankedPlan& best = found.plans.front();
      rows.push_back(table_row(std::to_string(batch), model, best));
      const std::string layout =
          fmt::format("{}.{}.{}.{}.{}.{}", best.plan.dp, best.plan.tp, best.plan.pp, best.plan.cp,
                      best.plan.ep, best.plan.expert_tp());
      if (!last_layout.empty() && layout != last_layout)
        rows.back().front() = "* " + rows.back().front();
      last_layout = layout;
      cut_by_work = cut_by_work || best.plan.is_cut_by_work(job.options.stage_cut);
      point.update(entry_to_json(model, best));
    }
    json["sweep"].push_back(point);
  }
  if (!any_searched) {
    const StepModel last(job.model, job.cluster, job.seq_len, last_batch, job.options);
    if (const Result<void> pins = check_pins(last, request); !pins) {
      return report(with_note(pins.error(), request));
    }
  }
  if (*args.job.json) {
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}\n\n", describe(job, "batch swept"));
    print_plans("batch", "<best layout", rows);
    fmt::print("* the layout differs from that of the batch above\n");
    if (cut_by_work) fmt::print("{}\n", kCutByWork);
  }
  return any ? kOk : kAnswerIsNo;
}

void say_not_used(std::initializer_list<const AnyOption*> options, const char* by) {
  for (const AnyOption* option : options) {
    if (option->given()) to_stderr(fmt::format("copus: {}: not used by {}\n", option->flag(), by));
  }
}

int run_plan(const PlanArgs& args) {
  const Result<Workload> job = load_job(args.job);
  if (!job) return report(job.error());
  SearchRequest request;
  request.variants = *args.variants;
  request.top = *args.top;
  if (args.fix.known()) {
    Result<PartialPlan> fixed = load_partial_plan(*args.fix, "--fix");
    if (!fixed) return report(fixed.error());
    request.fixed = std::move(fixed).value();
  }
  request.micro_batches = args.micro_batches.value_or(0);
  const bool emits = args.emit.given();
  if (emits && args.sweep_batch.given()) {
    return report(field_error("--emit", "got it with --sweep-batch; want one of the two"));
  }
  if (args.sweep_batch.given()) {
    say_not_used({&args.job.global_batch, &args.top, &args.variants}, "--sweep-batch");
    return run_sweep(args, *job, request);
  }
  if (emits) say_not_used({&args.top, &args.variants}, "--emit, which prints only the best plan");
  const StepModel model(job->model, job->cluster, job->seq_len, job->global_batch, job->options);
  bool progress_shown = false;
  if (isatty(STDERR_FILENO) != 0) {
    request.progress = [&](std::int64_t seen) {
      progress_shown = true;
      to_stderr(fmt::format("\r{:.0f}M plans searched …", static_cast<double>(seen) / 1e6));
    };
  }
  const SearchResult found = search(model, request);
  if (progress_shown) to_stderr("\r\033[K");
  if (found.searched == 0) {
    if (const Result<void> pins = check_pins(model, request); !pins) {
      return report(with_note(pins.error(), request));
    }
  }
  if (found.plans.empty()) {
    if (*args.job.json) {
      Json json;
      json["plans"] = Json::array();
      json["searched"] = found.searched;
      json["feasible"] = found.feasible;
      json["search_time_s"] = found.search_time.v;
      json["why"] = why_nothing(model, request, found);
      fmt::print("{}\n", json.dump(2));
    } else {
      fmt::print("{}\n{}\n", describe(*job), why_nothing(model, request, found));
    }
    return kAnswerIsNo;
  }
  if (emits) {
    const Result<std::vector<std::string>> flags = megatron_args(
        job->model, found.plans[0].plan, job->seq_len, job->global_batch, job->options);
    if (!flags) return report(flags.error());
    if (*args.job.json) {
      Json json;
      json["megatron_args"] = argument_words(*flags);
      fmt::print("{}\n", json.dump(2));
    } else {
      for (const std::string& flag : *flags) fmt::print("{}\n", shell_line(flag));
    }
    return kOk;
  }
  const std::optional<RankedPlan> usual = megatron_heuristic(model, request);
  if (*args.job.json) {
    Json json;
    json["plans"] = Json::array();
    for (const RankedPlan& entry : found.plans)
      json["plans"].push_back(entry_to_json(model, entry));
    json["searched"] = found.searched;
    json["feasible"] = found.feasible;
    json["search_time_s"] = found.search_time.v;
    json["megatron_heuristic"] = usual ? entry_to_json(model, *usual) : Json(nullptr);
    json["assumed"] = options_to_json(job->options);
    fmt::print("{}\n", json.dump(2));
  } else {
    print_search(*job, model, found, usual);
  }
  return kOk;
}

}  // namespace

void add_plan_command(CommandLine& line) {
  line.add<PlanArgs>({"plan", "Search the best layout for a model, a cluster and a batch",
                      "copus plan --model llama-3.2-3b --cluster 1x8xH100-80GB-SXM --seq-len 2048 "
                      "--sweep-batch 16:512 --fix zero=0,recompute=none"},
                     run_plan);
}

}  // namespace copus
