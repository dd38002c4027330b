#include "copus/sim/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "copus/base/mean.h"

namespace copus {
namespace {

constexpr Seconds kNever(std::numeric_limits<double>::infinity());

Seconds time_to(const SimOutcome& run, std::size_t loss) {
  return loss < run.crossings.size() ? run.crossings[loss].t : kNever;
}

// Returns the run of the baseline that reaches a loss first with one seed; null if none reaches it.
const SimOutcome* fastest_run(const std::vector<Policy>& policies,
                              const std::vector<std::vector<SimOutcome>>& runs, std::size_t seed,
                              std::size_t loss) {
  const SimOutcome* fastest = nullptr;
  for (std::size_t p = 0; p < policies.size(); ++p) {
    if (!policies[p].baseline() || loss >= runs[p][seed].crossings.size()) continue;
    const bool faster =
        fastest == nullptr || time_to(runs[p][seed], loss) < time_to(*fastest, loss);
    if (faster) fastest = &runs[p][seed];
  }
  return fastest;
}

Speedup speedup_of(const std::vector<Policy>& policies,
                   const std::vector<std::vector<SimOutcome>>& runs, std::size_t policy,
                   std::size_t losses) {
  Speedup out;
  bool lost = false;  // a baseline reached a loss that this policy did not
  std::vector<std::vector<double>> by_seed(runs[policy].size());
  for (std::size_t l = 0; l < losses; ++l) {
    std::vector<double> percent, throughput, efficiency, pauses;
    for (std::size_t s = 0; s < runs[policy].size(); ++s) {
      const SimOutcome* base = fastest_run(policies, runs, s, l);
      if (base == nullptr) continue;
      if (l >= runs[policy][s].crossings.size()) {
        lost = true;
        percent.clear();
        break;
      }
      const SimPoint& ours = runs[policy][s].crossings[l];
      const SimPoint& theirs = base->crossings[l];
      percent.push_back(100 * (theirs.t / ours.t - 1));
      by_seed[s].push_back(percent.back());
      const Seconds moving = ours.t - ours.pauses, their_moving = theirs.t - theirs.pauses;
      throughput.push_back(ours.samples / moving.v / (theirs.samples / their_moving.v));
      efficiency.push_back(theirs.samples / ours.samples);
      pauses.push_back((moving / ours.t) / (their_moving / theirs.t));
    }
    out.by_loss.push_back(percent.empty() ? std::nan("") : mean(percent));
    out.throughput.push_back(mean(throughput));
    out.efficiency.push_back(mean(efficiency));
    out.pauses.push_back(mean(pauses));
  }
  std::vector<double> averages;
  for (const std::vector<double>& seed : by_seed) {
    if (!seed.empty()) averages.push_back(mean(seed));
  }
  if (averages.empty() || lost) {
    // There is no number for how much slower a run is that never reaches the loss.
    out.average = out.low = out.high = out.peak = std::nan("");
    return out;
  }
  out.average = mean(averages);
  out.low = *std::min_element(averages.begin(), averages.end());
  out.high = *std::max_element(averages.begin(), averages.end());
  out.peak = -kNever.v;
  for (const double percent : out.by_loss) {
    if (std::isfinite(percent)) out.peak = std::max(out.peak, percent);
  }
  return out;
}

PolicyResult summarise(const Policy& policy, const std::vector<SimOutcome>& runs,
                       const std::vector<double>& losses) {
  PolicyResult out;
  out.policy = policy;
  out.first = runs.front();
  const auto n = static_cast<double>(runs.size());
  for (const SimOutcome& run : runs) {
    out.switches += static_cast<double>(run.switches) / n;
    out.layout_switches += static_cast<double>(run.layout_switches) / n;
    out.failures += static_cast<double>(run.failures) / n;
    out.pause += run.pause / n;
    out.lost += run.lost / n;
  }
  for (std::size_t l = 0; l < losses.size(); ++l) {
    Reached reached{losses[l], Seconds(), kNever, Seconds(), 0};
    for (const SimOutcome& run : runs) {
      const Seconds time = time_to(run, l);
      reached.time += time / n;
      reached.low = min(reached.low, time);
      reached.high = max(reached.high, time);
      if (l < run.crossings.size()) reached.samples += run.crossings[l].samples / n;
    }
    out.reached.push_back(reached);
  }
  return out;
}

}  // namespace

Comparison compare(const std::vector<Policy>& policies,
                   const std::vector<std::vector<SimOutcome>>& runs,
                   const std::vector<double>& losses) {
  Comparison out;
  out.losses = losses;
  for (std::size_t p = 0; p < policies.size(); ++p) {
    out.policies.push_back(summarise(policies[p], runs[p], losses));
    out.policies.back().speedup = speedup_of(policies, runs, p, losses.size());
  }
  for (std::size_t l = 0; l < losses.size(); ++l) {
    FastestBaseline fastest{losses[l], "", kNever};
    for (const PolicyResult& result : out.policies) {
      if (result.policy.baseline() && result.reached[l].time < fastest.time) {
        fastest.name = result.policy.name;
        fastest.time = result.reached[l].time;
      }
    }
    if (!fastest.name.empty()) out.fastest.push_back(fastest);
  }
  return out;
}

}  // namespace copus
