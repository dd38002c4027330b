// copus plan: searches the best plans for a job and prints them.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "apps/copus/plan_report.h"
#include "copus/base/standard_streams.h"
#include "copus/base/text.h"
#include "copus/base/to_stderr.h"
#include "copus/interop/emitted_config.h"
#include "copus/interop/megatron_args.h"
#include "copus/tuner/pins.h"
#include "copus/tuner/search.h"
#include "copus/tuner/usual.h"

namespace copus {
namespace {

// A batch that is less faster than this is no news.
constexpr double kWorthIt = 0.02;

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

// The values of an option that takes a large count, as "15T", "300B" or "2e12".
Values<double> large_count() {
  return single<double>(
      "N",
      [](const std::string& text, const std::string& field) -> Result<double> {
        constexpr std::string_view kSuffixes = "KMBT";
        std::string_view number = text;
        double scale = 1;
        if (!number.empty()) {
          const std::size_t suffix = kSuffixes.find(
              static_cast<char>(std::toupper(static_cast<unsigned char>(text.back()))));
          if (suffix != std::string_view::npos) {
            scale = std::pow(1000.0, static_cast<double>(suffix + 1));
            number.remove_suffix(1);
          }
        }
        const Result<double> count = parse_number(number, field, 0, 1e18);
        if (!count || *count * scale < 1 || *count * scale > 1e18) {
          return field_error(field, "got {:?}; want a count such as 15T, 300B or 2e12", text);
        }
        return *count * scale;
      },
      [](double count) -> Json { return fmt::format("{:.15g}", count); });
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
  Option<double> tokens{this, "--tokens", large_count(),
                        "tokens of the whole run, as 15T: adds days and GPU-hours"};
  Option<double> price{this, "--price", number(0.0001, 1e6),
                       "price of a GPU-hour: adds the cost and tokens per unit of money"};
  Option<std::string> emit{this, "--emit", word(emit_targets()),
                           "print only the best plan, as flags or the config file of this engine; "
                           "without --framework the plan is for this engine"};
};

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
                        const SearchResult& found,
                        const std::optional<FittingCluster>& larger = std::nullopt) {
  if (!found.closest) {
    return fmt::format(
        "no layout is possible: the batch of {} must be divided by dp*micro_batch{}, tp must "
        "divide {} heads, pp at most {} "
        "layers, and what --fix pins{} must agree with that",
        model.global_batch(),
        request.micro_batches > 0 ? fmt::format(" into {} micro-batches", request.micro_batches)
                                  : "",
        model.model().heads, model.model().layers,
        model.limits() == nullptr ? "" : fmt::format(" and {} runs", model.limits()->engine));
  }
  const RankedPlan& c = *found.closest;
  std::string text = fmt::format(
      "no layout of {} fits: {} comes closest with {:.1f} GiB of {:.1f} on pipeline rank {}{}",
      found.searched, short_name(c.plan), to_gib(c.estimate.memory.total()), to_gib(model.budget()),
      c.estimate.memory_rank, note_on_pins(request));
  if (larger) {
    text += fmt::format("; needs at least {} ({}): {}", counted(larger->gpus, "GPU"),
                        counted(larger->nodes, "node"), short_name(larger->best.plan));
  }
  return text;
}

RunQuestion run_question(const PlanArgs& args) {
  return {args.tokens.value_or(0), args.price.value_or(0)};
}

int run_sweep(const PlanArgs& args, const Workload& job, const SearchRequest& request) {
  const RunQuestion run = run_question(args);
  PlanTable table("batch", "<best layout", run);
  Json json;
  json["sweep"] = Json::array();
  std::string last_layout;
  const BatchSweep& sweep = *args.sweep_batch;
  bool any = false, any_searched = false, cut_by_work = false;
  std::int64_t last_batch = sweep.from;
  for (std::int64_t batch = sweep.from; batch <= sweep.to; batch *= 2) {
    last_batch = batch;
    const StepModel model = step_model(job, batch);
    const SearchResult found = search(model, request);
    any_searched = any_searched || found.searched > 0;
    Json point;
    point["global_batch"] = batch;
    if (found.plans.empty()) {
      table.add_empty(std::to_string(batch), "nothing fits or divides");
      point["plan"] = nullptr;
      point["estimate"] = nullptr;
      point["why"] = why_nothing(model, request, found);
    } else {
      any = true;
      const RankedPlan& best = found.plans.front();
      table.add(std::to_string(batch), model, best);
      const std::string layout =
          fmt::format("{}.{}.{}.{}.{}.{}", best.plan.dp, best.plan.tp, best.plan.pp, best.plan.cp,
                      best.plan.ep, best.plan.expert_tp());
      if (!last_layout.empty() && layout != last_layout) table.mark_last();
      last_layout = layout;
      cut_by_work = cut_by_work || best.plan.is_cut_by_work(job.options.stage_cut);
      point.update(entry_to_json(model, best, run));
    }
    json["sweep"].push_back(point);
  }
  if (!any_searched) {
    const StepModel last = step_model(job, last_batch);
    if (const Result<void> pins = check_pins(last, request); !pins) {
      return report(with_note(pins.error(), request));
    }
  }
  if (*args.job.json) {
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}\n\n", describe(job, "batch swept"));
    table.print();
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

// Prints why nothing was found, and the smallest cluster on which a plan would fit.
int say_why_nothing(const PlanArgs& args, const Workload& job, const StepModel& model,
                    const SearchRequest& request, const SearchResult& found) {
  std::optional<FittingCluster> larger;
  if (found.closest) larger = smallest_cluster(model, request);
  const std::string why = why_nothing(model, request, found, larger);
  if (!*args.job.json) {
    fmt::print("{}\n{}\n", describe(job), why);
    return kAnswerIsNo;
  }
  Json json;
  json["plans"] = Json::array();
  json["searched"] = found.searched;
  json["feasible"] = found.feasible;
  json["search_time_s"] = found.search_time.v;
  json["why"] = why;
  if (larger) json["needs_gpus"] = larger->gpus;
  fmt::print("{}\n", json.dump(2));
  return kAnswerIsNo;
}

struct EmittedPlan {
  ParallelPlan plan;
  EmittedConfig config;
};

// Returns the configuration of the fastest plan that the engine can be told. If that is not the
// best plan, says why on standard error. If there is none, the error is that of the best plan.
Result<EmittedPlan> emitted_plan(const std::string& target, const Workload& job,
                                 const StepModel& model, SearchRequest request,
                                 const RankedPlan& best) {
  const EmitJob what{job.model, job.seq_len, job.global_batch, job.options};
  const Result<EmittedConfig> config = emit_config(target, what, best.plan);
  if (config) return EmittedPlan{best.plan, *config};
  const PartialPlan sayable = emit_pins(target);
  for (const PlanField field : sayable.given.list()) {
    if (!request.fixed.has(field)) request.fixed.pin({field}, sayable.plan);
  }
  const SearchResult found = search(model, request);
  if (found.plans.empty()) return config.error();
  const RankedPlan& other = found.plans[0];
  const Result<EmittedConfig> said = emit_config(target, what, other.plan);
  if (!said) return config.error();
  to_stderr(fmt::format("copus: --emit: {} instead of {}, which is {:.1f}% faster: {}\n",
                        short_name(other.plan), short_name(best.plan),
                        100 * (other.estimate.time / best.estimate.time - 1),
                        config.error().message));
  return EmittedPlan{other.plan, *said};
}

// Prints the plan as the engine's flags, one per line, or as its config file.
int emit(const PlanArgs& args, const Workload& job, const StepModel& model,
         const SearchRequest& request, const RankedPlan& best) {
  const Result<EmittedPlan> emitted = emitted_plan(*args.emit, job, model, request, best);
  if (!emitted) return report(emitted.error());
  const EmittedConfig& config = emitted->config;
  const bool file = !config.file.is_null();
  if (*args.job.json) {
    Json json;
    json[*args.emit + (file ? "_config" : "_args")] =
        file ? config.file : Json(argument_words(config.args));
    json["plan"] = plan_to_json(emitted->plan);
    fmt::print("{}\n", json.dump(2));
  } else if (file) {
    fmt::print("{}\n", config.file.dump(2));
  } else {
    for (const std::string& arg : config.args) fmt::print("{}\n", shell_line(arg));
  }
  return kOk;
}

int run_plan(const PlanArgs& args) {
  const Result<Workload> job = load_job(args.job, std::nullopt, args.emit.value_or(""));
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
  if (emits) {
    say_not_used({&args.top, &args.variants, &args.tokens, &args.price},
                 "--emit, which prints only the best plan");
  }
  const StepModel model = step_model(*job);
  bool progress_shown = false;
  if (isatty(STDERR_FILENO) != 0) {
    request.progress = [&](std::int64_t seen) {
      progress_shown = true;
      to_stderr(fmt::format("\r{:.0f}M plans searched …", static_cast<double>(seen) / 1e6));
    };
  }
  PlanAnswer answer;
  answer.found = search(model, request);
  const SearchResult& found = answer.found;
  if (progress_shown) to_stderr("\r\033[K");
  if (found.searched == 0) {
    if (const Result<void> pins = check_pins(model, request); !pins) {
      return report(with_note(pins.error(), request));
    }
  }
  if (found.plans.empty()) return say_why_nothing(args, *job, model, request, found);
  if (emits) return emit(args, *job, model, request, found.plans[0]);
  const Result<Spread> spread =
      prediction_spread(job->framework, job->cluster.gpu.name, job->options.precision);
  if (!spread) return report(spread.error());
  answer.spread = *spread;
  answer.usual = usual_plan(model, request, job->framework.usual);
  answer.better = better_batch(model, request, found.plans[0], found.searched, kWorthIt);
  const RunQuestion run = run_question(args);
  if (*args.job.json) {
    fmt::print("{}\n", search_to_json(*job, model, answer, run).dump(2));
  } else {
    print_search(*job, model, answer, run);
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
