#include "copus/goodput/trial.h"

#include <algorithm>
#include <cmath>

namespace copus {
namespace {

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

}  // namespace

// The partial expectations of a lognormal variable, as for a put and a call option at strike 1
// (Black and Scholes 1973).
TryWorth worth_of_try(const StepTimeRatio& x) {
  const double mean = std::exp(x.log_mean + x.log_sd * x.log_sd / 2);
  if (x.log_sd <= 0) {
    return {std::max(0.0, 1 - mean), std::max(0.0, mean - 1), x.log_mean > 0 ? 1.0 : 0.0};
  }
  const double z = x.log_mean / x.log_sd;
  TryWorth worth;
  worth.fails = normal_cdf(z);
  worth.saving = std::max(0.0, normal_cdf(-z) - mean * normal_cdf(-z - x.log_sd));
  worth.slowdown = std::max(0.0, mean * normal_cdf(z + x.log_sd) - normal_cdf(z));
  return worth;
}

TryWorth worth_of_try(const std::vector<WeightedRatio>& x) {
  TryWorth mean;
  for (const auto& [weight, ratio] : x) {
    const TryWorth part = worth_of_try(ratio);
    mean.saving += weight * part.saving;
    mean.slowdown += weight * part.slowdown;
    mean.fails += weight * part.fails;
  }
  return mean;
}

BatchTryWorth worth_of_batch_try(const std::vector<WeightedLaw>& laws, double gns,
                                 std::int64_t here, std::int64_t there, double speed) {
  BatchTryWorth all;
  double mean = 0, square = 0;
  for (const auto& [weight, law] : laws) {
    const double progress = law.progress_per_sample(static_cast<double>(there), gns) /
                            law.progress_per_sample(static_cast<double>(here), gns);
    const double x = 1 / (speed * progress);
    all.worth.saving += weight * std::max(0.0, 1 - x);
    all.worth.slowdown += weight * std::max(0.0, x - 1);
    if (x > 1) all.worth.fails += weight;
    mean += weight * std::log(progress);
    square += weight * std::log(progress) * std::log(progress);
  }
  all.log_sd = std::sqrt(std::max(0.0, square - mean * mean));
  return all;
}

}  // namespace copus
