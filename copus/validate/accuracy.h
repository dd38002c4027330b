// Compares predictions with measurements. Errors and shares are fractions (0.083 is 8.3%). A figure
// is absent if no rows contribute to it.
//
// All functions are pure: they depend only on the runs and their prices.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "copus/validate/price.h"

namespace copus {

// A run and its prediction. The run must outlive the PricedRun.
struct PricedRun {
  const MeasuredRun* run = nullptr;
  std::optional<RunPrice> price;  // nothing: the run cannot be priced, and run->problem says why

  // Whether the run has both a predicted and a measured step time.
  bool timed() const { return price && !run->failed && run->step_time; }
  // Returns predicted over measured step time, minus 1. REQUIRES: timed().
  double signed_error() const;
};

// Counts of runs that worked or failed, by whether they were predicted to fit in memory.
struct FitConfusion {
  std::size_t worked_fit = 0, worked_no_fit = 0;
  std::size_t failed_fit = 0, failed_no_fit = 0;
};

struct Accuracy {
  std::string source;
  std::size_t rows = 0;
  std::size_t priced = 0;
  std::size_t timed = 0;  // number of rows behind the next four figures
  std::optional<double> mape, median_ape, bias, within_10pct;

  // How well the predictions rank plans. A group is at least kMinGroup rows of one source, model,
  // GPU, number of GPUs, batch and sequence length; usually its rows differ only in their plan. For
  // each group there is Spearman's rank correlation and the regret: how much slower the plan
  // predicted fastest is than the plan measured fastest.
  std::size_t groups = 0;
  std::optional<double> spearman_median, spearman_mean, regret_mean, regret_max;

  std::size_t memory_rows = 0;
  std::optional<double> memory_mape, memory_median_ape;
  FitConfusion fit;
};

constexpr std::size_t kMinGroup = 4;

Accuracy accuracy_of(std::span<const PricedRun> runs, std::string source);

struct AccuracyReport {
  struct Source {
    Accuracy all;
    std::optional<Accuracy> one_node, several_nodes;  // only if the source has both kinds of runs
  };
  std::vector<Source> sources;  // in the order of their first runs
  Accuracy all;
};
AccuracyReport accuracy_report(std::span<const PricedRun> runs);

// Returns the `count` timed runs with the largest errors, the worst first.
std::vector<const PricedRun*> worst_runs(std::span<const PricedRun> runs, std::size_t count);

// A reason why rows were not priced. not_priced() returns the reason with the most rows first.
struct NotPriced {
  std::string reason;
  std::vector<const MeasuredRun*> runs;
};
std::vector<NotPriced> not_priced(std::span<const PricedRun> runs);

// A default that rows use for a column that they do not state. assumptions() returns the default
// with the most rows first.
struct Assumption {
  std::string text;  // "vocab=51200"
  std::size_t rows = 0;
};
std::vector<Assumption> assumptions(std::span<const PricedRun> runs);

// Returns the rank of each value, from 1 upwards. Equal values share their mean rank.
std::vector<double> mean_ranks(std::span<const double> values);
// Returns Spearman's rank correlation. Nothing if all values of one side are equal. REQUIRES: `a`
// and `b` have the same size.
std::optional<double> spearman(std::span<const double> a, std::span<const double> b);

}  // namespace copus
