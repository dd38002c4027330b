#include "apps/copus/plan_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "copus/base/standard_streams.h"
#include "copus/base/text.h"

namespace copus {
namespace {

constexpr const char* kBarTitle = "<where the time goes";
constexpr double kSecondsPerHour = 3600, kHoursPerDay = 24;

struct RunFigures {
  double days = 0, gpu_hours = 0, cost = 0, tokens_per_dollar = 0;
};

// Steps are counted in fractions: the last one may have fewer samples.
RunFigures figures(const StepModel& model, const RankedPlan& entry, const RunQuestion& run) {
  const double step_tokens =
      static_cast<double>(model.global_batch()) * static_cast<double>(model.seq_len());
  const double hours = run.tokens / step_tokens * entry.estimate.time.v / kSecondsPerHour;
  RunFigures run_figures;
  run_figures.days = hours / kHoursPerDay;
  run_figures.gpu_hours = hours * static_cast<double>(model.cluster().gpus());
  run_figures.cost = run_figures.gpu_hours * run.price;
  if (run.price > 0) {
    run_figures.tokens_per_dollar =
        model.tokens_per_s_per_gpu(entry.estimate.time) * kSecondsPerHour / run.price;
  }
  return run_figures;
}

std::string as_percent(double share) { return fmt::format("{:.0f}%", 100 * share); }

// Says which plans the prediction cannot tell apart, and how sure it is.
void print_spread(const Workload& job, const PlanAnswer& answer) {
  const std::vector<RankedPlan>& plans = answer.found.plans;
  const Spread& spread = answer.spread;
  // A calibrated cluster file has a profile of its own, which was fitted to the user's runs.
  if (!spread.unseen.empty() && !job.cluster.framework.is_object()) {
    fmt::print(
        "Fewer than four runs of {} were compared: steps may be off by {}, and the order by "
        "{}.\n",
        join_or(spread.unseen), as_percent(spread.time), as_percent(spread.order));
  }
  const auto close = std::count_if(plans.begin(), plans.end(), [&](const RankedPlan& plan) {
    return plan.estimate.time < plans[0].estimate.time * (1 + spread.order);
  });
  if (close > 1) {
    fmt::print("The first {} are within {}, less than the error of predictions: time them.\n",
               close, as_percent(spread.order));
  }
}

std::string usual_rule(const Workload& job) {
  return fmt::format("{}'s usual rule ({})", job.framework.title, job.framework.usual.text);
}

}  // namespace

const char* const kCutByWork =
    "Stages are cut by work, also inside layers: only for an engine that can do this.";

PlanTable::PlanTable(const char* label, const char* layout, const RunQuestion& run) : run_(run) {
  titles_ = {label, layout, "step"};
  if (run.tokens > 0) titles_.insert(titles_.end(), {"days", "GPU-hours"});
  if (run.tokens > 0 && run.price > 0) titles_.emplace_back("cost");
  if (run.price > 0) titles_.emplace_back("tok/$");
  titles_.insert(titles_.end(), {"tok/s/GPU", "MFU", "GiB", kBarTitle});
}

void PlanTable::add(std::string label, const StepModel& model, const RankedPlan& entry) {
  const StepEstimate& e = entry.estimate;
  const RunFigures run = figures(model, entry, run_);
  std::vector<std::string> row = {std::move(label), short_name(entry.plan),
                                  human_seconds(e.time.v)};
  if (run_.tokens > 0) {
    row.push_back(run.days < 10 ? fmt::format("{:.2f}", run.days)
                                : fmt::format("{:.1f}", run.days));
    row.push_back(short_count(run.gpu_hours));
  }
  if (run_.tokens > 0 && run_.price > 0) row.push_back("$" + short_count(run.cost));
  if (run_.price > 0) row.push_back(short_count(run.tokens_per_dollar));
  row.push_back(fmt::format("{:.0f}", model.tokens_per_s_per_gpu(e.time)));
  row.push_back(fmt::format("{:.1f}%", 100 * model.mfu(e.time)));
  row.push_back(fmt::format("{:.1f}", to_gib(e.memory.total())));
  row.push_back(time_bar(e.breakdown, 30));
  rows_.push_back(std::move(row));
}

void PlanTable::add_empty(std::string label, const std::string& why) {
  rows_.emplace_back(titles_.size());
  rows_.back()[0] = std::move(label);
  rows_.back()[1] = why;
}

void PlanTable::mark_last() { rows_.back().front() = "* " + rows_.back().front(); }

bool PlanTable::print() const {
  std::vector<std::string> dropped;
  const std::string table =
      format_table(titles_, rows_, output_columns(STDOUT_FILENO),
                   {kBarTitle, "MFU", "tok/s/GPU", "GiB", "tok/$", "GPU-hours"}, &dropped);
  fmt::print("{}\n", table);
  if (dropped.empty()) fmt::print("{}\n", bar_legend());
  return dropped.empty();
}

void print_search(const Workload& job, const StepModel& model, const PlanAnswer& answer,
                  const RunQuestion& run) {
  const SearchResult& found = answer.found;
  fmt::print("{}\n{} searched in {}, {} fit in {:.1f} GiB\n\n", describe(job),
             counted(found.searched, "plan"), human_seconds(found.search_time.v), found.feasible,
             to_gib(model.budget()));
  PlanTable table("#", "<layout", run);
  std::int64_t number = 0;
  for (const RankedPlan& entry : found.plans) table.add(std::to_string(++number), model, entry);
  if (table.print()) fmt::print("\n");
  const RankedPlan& best = found.plans[0];
  if (std::any_of(found.plans.begin(), found.plans.end(), [&](const auto& entry) {
        return entry.plan.is_cut_by_work(job.options.stage_cut);
      })) {
    fmt::print("{}\n", kCutByWork);
  }
  if (found.plans.size() > 1) fmt::print("{}.\n", explain_difference(best, found.plans[1]));
  print_spread(job, answer);
  if (!answer.usual) {
    fmt::print("{} finds nothing that fits and agrees with what is pinned.\n", usual_rule(job));
  } else if (answer.usual->plan == best.plan) {
    fmt::print("{} picks the same plan.\n", usual_rule(job));
  } else {
    const RankedPlan& usual = *answer.usual;
    fmt::print("{} would pick {}: {}, {:.2f}x as long.\n", usual_rule(job), short_name(usual.plan),
               human_seconds(usual.estimate.time.v), usual.estimate.time / best.estimate.time);
    // The runner-up may be this plan; then its difference has been explained.
    if (found.plans.size() < 2 || !(found.plans[1].plan == usual.plan)) {
      fmt::print("{}.\n", explain_difference(best, usual));
    }
  }
  if (answer.better) {
    fmt::print("Batch {} is {:.0f}% faster per sample than {} here: {}.\n",
               answer.better->global_batch, 100 * answer.better->faster, model.global_batch(),
               short_name(answer.better->best.plan));
  }
}

Json entry_to_json(const StepModel& model, const RankedPlan& entry, const RunQuestion& run) {
  Json json;
  json["plan"] = plan_to_json(entry.plan);
  Json& estimate = json["estimate"] = estimate_to_json(model, entry.estimate);
  const RunFigures of_run = figures(model, entry, run);
  if (run.tokens > 0) {
    estimate["days"] = of_run.days;
    estimate["gpu_hours"] = of_run.gpu_hours;
  }
  if (run.tokens > 0 && run.price > 0) estimate["cost"] = of_run.cost;
  if (run.price > 0) estimate["tokens_per_dollar"] = of_run.tokens_per_dollar;
  return json;
}

Json search_to_json(const Workload& job, const StepModel& model, const PlanAnswer& answer,
                    const RunQuestion& run) {
  const SearchResult& found = answer.found;
  Json json;
  json["plans"] = Json::array();
  for (const RankedPlan& entry : found.plans)
    json["plans"].push_back(entry_to_json(model, entry, run));
  json["searched"] = found.searched;
  json["feasible"] = found.feasible;
  json["search_time_s"] = found.search_time.v;
  json["usual_rule"] = answer.usual ? entry_to_json(model, *answer.usual, run) : Json::object();
  json["usual_rule"]["rule"] = job.framework.usual.text;
  if (answer.better) {
    Json& better = json["better_batch"] = entry_to_json(model, answer.better->best, run);
    better["global_batch"] = answer.better->global_batch;
    better["faster"] = answer.better->faster;
  }
  json["spread"] = {{"time", answer.spread.time},
                    {"order", answer.spread.order},
                    {"runs", answer.spread.runs},
                    {"unseen", answer.spread.unseen}};
  if (answer.spread.runs > 0) json["spread"]["runs_of"] = answer.spread.runs_of;
  json["framework"] = job.framework.name;
  if (!job.framework.analogy.empty()) json["analogy"] = job.framework.analogy;
  json["assumed"] = options_to_json(job.options);
  return json;
}

}  // namespace copus
