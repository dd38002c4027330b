// Comparison: the time of several policies to each loss, over seeds, and their speedup over the
// fastest baseline.
#pragma once

#include <string>
#include <vector>

#include "copus/sim/policies.h"

namespace copus {

struct Reached {
  double loss = 0;
  Seconds time;       // mean over seeds; infinite if a run did not reach the loss
  Seconds low, high;  // smallest and largest over seeds
  double samples = 0;
};

// How much faster a policy is than the fastest baseline of the same seed, in percent: 10 means 1.1
// times as fast. A value is NaN at a loss that no baseline reached, or that a baseline reached and
// this policy did not. In the second case average, low, high and peak are NaN too.
struct Speedup {
  std::vector<double> by_loss;            // mean over seeds
  double average = 0, low = 0, high = 0;  // mean over losses; its smallest and largest over seeds
  double peak = 0;                        // largest of by_loss
  // Factors by loss, means over seeds: samples per second without pauses, fewer samples, and the
  // share of time without pauses. In each seed their product is 1 + speedup / 100.
  std::vector<double> throughput, efficiency, pauses;
};

struct PolicyResult {
  Policy policy;
  std::vector<Reached> reached;
  // Means over seeds.
  double switches = 0, layout_switches = 0, failures = 0;
  Seconds pause, lost;
  Speedup speedup;
  SimOutcome first;  // the run of the first seed, for the plot
};

struct FastestBaseline {
  double loss = 0;
  std::string name;  // of the baseline with the smallest mean time
  Seconds time;
};

struct Comparison {
  std::vector<double> losses;
  std::vector<PolicyResult> policies;
  std::vector<FastestBaseline> fastest;  // only for losses that a baseline reached with every seed
};

// `runs[p][s]`: policy p with seed s.
Comparison compare(const std::vector<Policy>& policies,
                   const std::vector<std::vector<SimOutcome>>& runs,
                   const std::vector<double>& losses);

}  // namespace copus
