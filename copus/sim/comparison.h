// Policies side by side: time to each loss, over seeds, and how much faster than the fastest
// baseline.
#pragma once

#include <string>
#include <vector>

#include "copus/sim/policies.h"

namespace copus {

struct Reached {
  double loss = 0;
  Seconds time;       // mean over seeds; infinite where a run did not get there
  Seconds low, high;  // over seeds
  double samples = 0;
};

// Over the fastest baseline of the same seed, in percent: 10 is 1.1 times as fast. Not a number
// where a baseline reached a loss that this policy did not: then there is no average either.
struct Speedup {
  std::vector<double> by_loss;            // mean over seeds
  double average = 0, low = 0, high = 0;  // over losses; its spread over seeds
  double peak = 0;                        // largest of by_loss
  // By loss, means over seeds: what came from more samples a second, from fewer samples, and what
  // switches took. In each seed the speedup is their product.
  std::vector<double> throughput, efficiency, pauses;
};

struct PolicyResult {
  Policy policy;
  std::vector<Reached> reached;
  // Means over seeds.
  double switches = 0, layout_switches = 0, failures = 0;
  Seconds pause, lost;
  Speedup speedup;
  SimOutcome first;  // of the first seed, to draw
};

struct FastestBaseline {
  double loss = 0;
  std::string name;  // by mean time
  Seconds time;
};

struct Comparison {
  std::vector<double> losses;
  std::vector<PolicyResult> policies;
  std::vector<FastestBaseline> fastest;  // empty where no baseline was run
};

// `runs[p][s]`: policy p with seed s.
Comparison compare(const std::vector<Policy>& policies,
                   const std::vector<std::vector<SimOutcome>>& runs,
                   const std::vector<double>& losses);

}  // namespace copus
