#include "copus/validate/accuracy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "copus/base/mean.h"
#include "copus/base/median.h"

namespace copus {
namespace {

constexpr double kClose = 0.10;

std::optional<double> average(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return mean(values);
}

std::optional<double> middle(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return median(values);
}

std::optional<double> greatest(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  return *std::max_element(values.begin(), values.end());
}

// Returns the properties that two runs share if a planner could choose between their plans.
auto group_key(const MeasuredRun& run) {
  return std::tuple(run.source, run.model.name, run.model.layers, run.model.hidden, run.model.ffn,
                    run.cluster.gpu.name, run.plan.gpus(), run.global_batch, run.seq_len);
}

// Returns how much slower the plan predicted fastest is than the plan measured fastest. If several
// plans are predicted fastest, uses the mean of their measured times, because a planner cannot tell
// them apart.
double regret(std::span<const double> predicted, std::span<const double> measured) {
  const double first = *std::min_element(predicted.begin(), predicted.end());
  double chosen = 0;
  double ties = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    if (predicted[i] != first) continue;
    chosen += measured[i];
    ++ties;
  }
  return chosen / ties / *std::min_element(measured.begin(), measured.end()) - 1;
}

void add_step_time(std::span<const PricedRun> runs, Accuracy& result) {
  std::vector<double> errors, sizes;
  std::size_t close = 0;
  for (const PricedRun& priced : runs) {
    if (!priced.timed()) continue;
    errors.push_back(priced.signed_error());
    sizes.push_back(std::abs(errors.back()));
    if (sizes.back() <= kClose) ++close;
  }
  result.timed = errors.size();
  result.mape = average(sizes);
  result.median_ape = middle(sizes);
  result.bias = average(errors);
  if (!errors.empty()) {
    result.within_10pct = static_cast<double>(close) / static_cast<double>(errors.size());
  }
}

void add_ranking(std::span<const PricedRun> runs, Accuracy& result) {
  struct Group {
    std::vector<double> predicted, measured;
  };
  std::map<decltype(group_key(*runs[0].run)), Group> groups;
  for (const PricedRun& priced : runs) {
    if (!priced.timed()) continue;
    Group& group = groups[group_key(*priced.run)];
    group.predicted.push_back(priced.price->step_time.v);
    group.measured.push_back(priced.run->step_time->v);
  }
  std::vector<double> correlations, regrets;
  for (const auto& [key, group] : groups) {
    if (group.measured.size() < kMinGroup) continue;
    ++result.groups;
    regrets.push_back(regret(group.predicted, group.measured));
    const auto [low, high] = std::minmax_element(group.measured.begin(), group.measured.end());
    if (*low == *high) continue;  // all times are equal, so there is no order to predict
    correlations.push_back(spearman(group.predicted, group.measured).value_or(0));
  }
  result.spearman_median = middle(correlations);
  result.spearman_mean = average(correlations);
  result.regret_mean = average(regrets);
  result.regret_max = greatest(regrets);
}

void add_memory(std::span<const PricedRun> runs, Accuracy& result) {
  std::vector<double> errors;
  for (const PricedRun& priced : runs) {
    if (!priced.price) continue;
    if (priced.run->failed) {
      ++(priced.price->fits ? result.fit.failed_fit : result.fit.failed_no_fit);
      continue;
    }
    ++(priced.price->fits ? result.fit.worked_fit : result.fit.worked_no_fit);
    if (priced.run->peak_memory) {
      errors.push_back(std::abs(priced.price->peak_memory / *priced.run->peak_memory - 1));
    }
  }
  result.memory_rows = errors.size();
  result.memory_mape = average(errors);
  result.memory_median_ape = middle(errors);
}

// Counts the GPUs of the plan, because a run that cannot be priced may have no cluster.
bool on_one_node(const MeasuredRun& run) { return run.plan.gpus() <= run.cluster.gpus_per_node; }

// Sorts items by their number of rows, most first. Items with equal numbers keep their order.
template <typename T, typename Rows>
void most_first(std::vector<T>& items, Rows rows) {
  std::stable_sort(items.begin(), items.end(),
                   [&](const T& a, const T& b) { return rows(a) > rows(b); });
}

}  // namespace

double PricedRun::signed_error() const {
  COPUS_CHECK(timed());
  return price->step_time / *run->step_time - 1;
}

Accuracy accuracy_of(std::span<const PricedRun> runs, std::string source) {
  Accuracy result;
  result.source = std::move(source);
  result.rows = runs.size();
  result.priced = static_cast<std::size_t>(std::count_if(
      runs.begin(), runs.end(), [](const PricedRun& p) { return p.price.has_value(); }));
  add_step_time(runs, result);
  add_ranking(runs, result);
  add_memory(runs, result);
  return result;
}

AccuracyReport accuracy_report(std::span<const PricedRun> runs) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<PricedRun>> by_source;
  for (const PricedRun& priced : runs) {
    std::vector<PricedRun>& rows = by_source[priced.run->source];
    if (rows.empty()) names.push_back(priced.run->source);
    rows.push_back(priced);
  }
  AccuracyReport report;
  for (const std::string& name : names) {
    std::vector<PricedRun>& rows = by_source[name];
    AccuracyReport::Source source{accuracy_of(rows, name), std::nullopt, std::nullopt};
    const auto several = std::stable_partition(
        rows.begin(), rows.end(), [](const PricedRun& p) { return on_one_node(*p.run); });
    if (several != rows.begin() && several != rows.end()) {
      source.one_node = accuracy_of({rows.begin(), several}, name);
      source.several_nodes = accuracy_of({several, rows.end()}, name);
    }
    report.sources.push_back(std::move(source));
  }
  report.all = accuracy_of(runs, "all");
  return report;
}

std::vector<const PricedRun*> worst_runs(std::span<const PricedRun> runs, std::size_t count) {
  std::vector<const PricedRun*> worst;
  for (const PricedRun& priced : runs) {
    if (priced.timed()) worst.push_back(&priced);
  }
  std::stable_sort(worst.begin(), worst.end(), [](const PricedRun* a, const PricedRun* b) {
    return std::abs(a->signed_error()) > std::abs(b->signed_error());
  });
  worst.resize(std::min(count, worst.size()));
  return worst;
}

std::vector<NotPriced> not_priced(std::span<const PricedRun> runs) {
  std::vector<NotPriced> reasons;
  std::map<std::string, std::size_t> at;
  for (const PricedRun& priced : runs) {
    if (priced.price) continue;
    const auto [found, is_new] = at.try_emplace(priced.run->problem, reasons.size());
    if (is_new) reasons.push_back({priced.run->problem, {}});
    reasons[found->second].runs.push_back(priced.run);
  }
  most_first(reasons, [](const NotPriced& n) { return n.runs.size(); });
  return reasons;
}

std::vector<Assumption> assumptions(std::span<const PricedRun> runs) {
  std::vector<Assumption> assumed;
  std::map<std::string, std::size_t> at;
  for (const PricedRun& priced : runs) {
    for (const std::string& text : priced.run->assumed) {
      const auto [found, is_new] = at.try_emplace(text, assumed.size());
      if (is_new) assumed.push_back({text, 0});
      ++assumed[found->second].rows;
    }
  }
  most_first(assumed, [](const Assumption& a) { return a.rows; });
  return assumed;
}

std::vector<double> mean_ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + 1 + end) / 2;
    }
    begin = end;
  }
  return ranks;
}

std::optional<double> spearman(std::span<const double> a, std::span<const double> b) {
  COPUS_CHECK(a.size() == b.size());
  const std::vector<double> x = mean_ranks(a), y = mean_ranks(b);
  const double middle = (static_cast<double>(a.size()) + 1) / 2;
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - middle) * (x[i] - middle);
    yy += (y[i] - middle) * (y[i] - middle);
    xy += (x[i] - middle) * (y[i] - middle);
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

}  // namespace copus
