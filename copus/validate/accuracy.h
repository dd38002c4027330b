// Accuracy: how predictions agree with what was measured. Figures are fractions (0.083 is 8.3%);
// one that has no rows to come from is absent.
//
// Pure functions of the runs and their prices.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "copus/validate/price.h"

namespace copus {

// A run and what was predicted of it. The run must outlive it.
struct PricedRun {
  const MeasuredRun* run = nullptr;
  std::optional<RunPrice> price;  // nothing: run->problem says why

  // Whether the prediction of step time has something to be compared with.
  bool timed() const { return price && !run->failed && run->step_time; }
  // Predicted over measured, less 1. REQUIRES: timed().
  double signed_error() const;
};

// Runs that worked or failed, by whether they were predicted to fit.
struct FitConfusion {
  std::size_t worked_fit = 0, worked_no_fit = 0;
  std::size_t failed_fit = 0, failed_no_fit = 0;
};

struct Accuracy {
  std::string source;
  std::size_t rows = 0;
  std::size_t priced = 0;
  std::size_t timed = 0;  // rows behind the next four
  std::optional<double> mape, median_ape, bias, within_10pct;

  // Inside groups of kMinGroup rows or more of one source, model, GPU, number of GPUs, batch and
  // sequence length, which as a rule differ in their plan alone: Spearman's rank
  // correlation, and how much slower the plan predicted fastest is than the fastest measured.
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
    std::optional<Accuracy> one_node, several_nodes;  // where the source has both
  };
  std::vector<Source> sources;  // as they first appear
  Accuracy all;
};
AccuracyReport accuracy_report(std::span<const PricedRun> runs);

// The `count` timed runs with the largest errors, the worst first.
std::vector<const PricedRun*> worst_runs(std::span<const PricedRun> runs, std::size_t count);

// Why rows were not priced, most rows first.
struct NotPriced {
  std::string reason;
  std::vector<const MeasuredRun*> runs;
};
std::vector<NotPriced> not_priced(std::span<const PricedRun> runs);

// What was assumed for columns that a row does not state, with the number of rows, most first.
struct Assumption {
  std::string text;  // "vocab=51200"
  std::size_t rows = 0;
};
std::vector<Assumption> assumptions(std::span<const PricedRun> runs);

// Ranks from 1 upwards; equal values share their mean rank.
std::vector<double> mean_ranks(std::span<const double> values);
// Nothing where one side's values are all the same. REQUIRES: the same number of both.
std::optional<double> spearman(std::span<const double> a, std::span<const double> b);

}  // namespace copus
