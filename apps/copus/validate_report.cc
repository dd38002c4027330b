#include "apps/copus/validate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "copus/base/text.h"

namespace copus {

std::string percent(const std::optional<double>& fraction) {
  return fraction ? fmt::format("{:.1f}%", 100 * *fraction) : "-";
}

namespace {

constexpr std::size_t kLineWidth = 132;
constexpr std::size_t kNameWidth = 34;
constexpr std::size_t kMaxReasons = 12;
constexpr std::size_t kMaxExamples = 3;

using Rows = std::vector<std::vector<std::string>>;

std::string signed_percent(const std::optional<double>& fraction) {
  return fraction ? fmt::format("{:+.1f}%", 100 * *fraction) : "-";
}
std::string plain(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f}", *value) : "-";
}
std::string count(std::size_t n) { return fmt::format("{}", n); }
std::string rows_text(std::size_t n) { return fmt::format("{} row{}", n, n == 1 ? "" : "s"); }

// A line of a table: a source, its rows of one scale, or all rows.
struct Line {
  std::string name;
  const Accuracy* figures;
};

std::vector<Line> lines_of(const AccuracyReport& report) {
  std::vector<Line> lines;
  for (const AccuracyReport::Source& source : report.sources) {
    lines.push_back({shortened(source.all.source, kNameWidth), &source.all});
    if (source.one_node) lines.push_back({"  one node", &*source.one_node});
    if (source.several_nodes) lines.push_back({"  several nodes", &*source.several_nodes});
  }
  if (report.sources.size() != 1) lines.push_back({"all", &report.all});
  return lines;
}

std::string figures_text(const AccuracyReport& report) {
  Rows times, ranks, memory;
  for (const auto& [name, a] : lines_of(report)) {
    times.push_back({name, count(a->rows), count(a->priced), count(a->timed), percent(a->mape),
                     percent(a->median_ape), signed_percent(a->bias), percent(a->within_10pct)});
    if (a->groups > 0) {
      ranks.push_back({name, count(a->groups), plain(a->spearman_median), plain(a->spearman_mean),
                       percent(a->regret_mean), percent(a->regret_max)});
    }
    const std::size_t failed = a->fit.failed_fit + a->fit.failed_no_fit;
    if (name.starts_with(' ') && a->memory_rows + failed == 0) continue;
    memory.push_back({name, count(a->memory_rows), percent(a->memory_mape),
                      percent(a->memory_median_ape), count(a->fit.worked_fit),
                      count(a->fit.worked_no_fit), count(a->fit.failed_fit),
                      count(a->fit.failed_no_fit)});
  }
  std::string text = format_table(
      {"step time", "rows", "priced", "timed", "mean error", "median", "bias", "within 10%"},
      times);
  if (ranks.empty()) {
    text += fmt::format("\nranking: no group of {} rows or more with measured times\n", kMinGroup);
  } else {
    text += '\n' + format_table({"ranking of plans", "groups", "rank correlation: median", "mean",
                                 "top-1 regret: mean", "largest"},
                                ranks);
    text += fmt::format(
        "inside groups of {} rows or more of one source, model, GPU, number of GPUs, batch and "
        "sequence length\n",
        kMinGroup);
  }
  text += '\n' + format_table({"memory and fit", "measured", "mean error", "median", "worked: fits",
                               "does not", "failed: fits", "does not"},
                              memory);
  if (report.all.fit.failed_fit + report.all.fit.failed_no_fit > 0) {
    text += "a failed run was out of memory or crashed otherwise: the tables do not say which\n";
  }
  return text;
}

// Breaks the text into lines at spaces and indents each line.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string out;
  std::size_t column = kLineWidth + 1;
  for (const std::string_view word : split(text, ' ')) {
    if (column + 1 + word.size() > kLineWidth) {
      if (!out.empty()) out += '\n';
      out += std::string(indent, ' ');
      column = indent;
    } else {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + '\n';
}

struct Worst {
  const PricedRun* priced;
  std::string reason;
};

std::vector<Worst> worst_of(const Validation& validation) {
  const std::vector<std::optional<Twin>> twins = find_twins(validation.runs);
  std::vector<Worst> worst;
  for (const PricedRun* priced : worst_runs(validation.runs, validation.top)) {
    const auto index = static_cast<std::size_t>(priced - validation.runs.data());
    worst.push_back({priced, likely_reason(*priced->run, *priced->price, twins[index])});
  }
  return worst;
}

std::string worst_text(const Validation& validation) {
  const std::vector<Worst> worst = worst_of(validation);
  if (worst.empty()) return "";
  Rows rows;
  for (const auto& [priced, reason] : worst) {
    const MeasuredRun& run = *priced->run;
    rows.push_back({shortened(run.id, 24), shortened(run.source, 20), shortened(run.model.name, 24),
                    count(static_cast<std::size_t>(run.plan.gpus())),
                    shortened(short_name(run.plan), 30), human_seconds(*run.step_time),
                    human_seconds(priced->price->step_time),
                    signed_percent(priced->signed_error())});
  }
  const std::string table = format_table(
      {"worst rows", "<source", "<model", "GPUs", "<plan", "measured", "predicted", "error"}, rows);
  const std::vector<std::string_view> lines = split(table, '\n');
  std::string text = fmt::format("\n{}\n", lines[0]);
  for (std::size_t i = 0; i < worst.size(); ++i) {
    text += fmt::format("{}\n", lines[i + 1]) + wrapped(worst[i].reason, 4);
  }
  return text;
}

std::string assumed_text(const Validation& validation) {
  std::string text;
  for (const Assumption& assumed : assumptions(validation.runs)) {
    text +=
        fmt::format("{}{} for {}", text.empty() ? "" : "; ", assumed.text, rows_text(assumed.rows));
  }
  if (!text.empty()) text = "\nassumed where a row does not say:\n" + wrapped(text, 4);
  if (validation.unknown_frameworks.empty()) return text;
  std::string names;
  for (const auto& [name, rows] : validation.unknown_frameworks) {
    names += fmt::format("{}{} in {}", names.empty() ? "" : "; ", name, rows_text(rows));
  }
  return text + "\nframeworks without a profile, priced with the default one:\n" +
         wrapped(names, 4);
}

std::string not_priced_text(const Validation& validation) {
  const std::vector<NotPriced> reasons = not_priced(validation.runs);
  std::string text;
  for (std::size_t i = 0; i < std::min(reasons.size(), kMaxReasons); ++i) {
    const NotPriced& reason = reasons[i];
    std::string examples;
    for (std::size_t r = 0; r < std::min(reason.runs.size(), kMaxExamples); ++r) {
      examples += (r == 0 ? "" : ", ") + reason.runs[r]->id;
    }
    if (reason.runs.size() > kMaxExamples) examples += ", …";
    text += wrapped(
        fmt::format("{}: {} ({})", rows_text(reason.runs.size()), reason.reason, examples), 4);
  }
  if (reasons.size() > kMaxReasons) {
    text += fmt::format("    and {} more reasons\n", reasons.size() - kMaxReasons);
  }
  return text.empty() ? text : "\nnot priced:\n" + text;
}

Json to_json(const Accuracy& a) {
  Json json;
  json["source"] = a.source;
  json["rows"] = a.rows;
  json["priced"] = a.priced;
  json["timed"] = a.timed;
  json["mape"] = number_or_null(a.mape);
  json["median_ape"] = number_or_null(a.median_ape);
  json["bias"] = number_or_null(a.bias);
  json["within_10pct"] = number_or_null(a.within_10pct);
  json["groups"] = a.groups;
  json["spearman_median"] = number_or_null(a.spearman_median);
  json["spearman_mean"] = number_or_null(a.spearman_mean);
  json["regret_mean"] = number_or_null(a.regret_mean);
  json["regret_max"] = number_or_null(a.regret_max);
  json["memory_rows"] = a.memory_rows;
  json["memory_mape"] = number_or_null(a.memory_mape);
  json["memory_median_ape"] = number_or_null(a.memory_median_ape);
  json["fit"] = {{"worked_fit", a.fit.worked_fit},
                 {"worked_no_fit", a.fit.worked_no_fit},
                 {"failed_fit", a.fit.failed_fit},
                 {"failed_no_fit", a.fit.failed_no_fit}};
  return json;
}

}  // namespace

std::string notes_to_text(const Validation& validation) {
  const std::string text = assumed_text(validation) + not_priced_text(validation);
  return text.empty() ? text : text + "\n";
}

std::string validation_to_text(const Validation& validation) {
  const AccuracyReport report = accuracy_report(validation.runs);
  return figures_text(report) + worst_text(validation) + assumed_text(validation) +
         not_priced_text(validation);
}

Json validation_to_json(const Validation& validation) {
  const AccuracyReport report = accuracy_report(validation.runs);
  Json json;
  Json& sources = json["sources"] = Json::array();
  for (const AccuracyReport::Source& source : report.sources) {
    Json& entry = sources.emplace_back(to_json(source.all));
    if (source.one_node) entry["one_node"] = to_json(*source.one_node);
    if (source.several_nodes) entry["several_nodes"] = to_json(*source.several_nodes);
  }
  json["all"] = to_json(report.all);
  Json& worst = json["worst"] = Json::array();
  for (const auto& [priced, reason] : worst_of(validation)) {
    worst.push_back({{"id", priced->run->id},
                     {"source", priced->run->source},
                     {"measured_step_time_s", priced->run->step_time->v},
                     {"predicted_step_time_s", priced->price->step_time.v},
                     {"error", std::abs(priced->signed_error())},
                     {"reason", reason}});
  }
  Json& assumed = json["assumed"] = Json::object();
  for (const Assumption& a : assumptions(validation.runs)) assumed[a.text] = a.rows;
  json["unknown_frameworks"] = validation.unknown_frameworks;
  Json& unpriced = json["not_priced"] = Json::array();
  for (const PricedRun& priced : validation.runs) {
    if (priced.price) continue;
    unpriced.push_back({{"id", priced.run->id}, {"reason", priced.run->problem}});
  }
  return json;
}

}  // namespace copus
