// For tests: an estimate of the noise scale with a given uncertainty.
#pragma once

#include <cmath>
#include <limits>

#include "copus/goodput/noise_scale.h"

namespace copus {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// `sd`: the relative standard deviation of the estimate.
inline NoiseEstimate estimate(double gns, double sd = 0.05) {
  NoiseEstimate made;
  made.terms = {1, gns};
  made.gns = gns;
  made.low = gns * std::exp(-1.96 * sd);
  made.high = gns * std::exp(1.96 * sd);
  made.weight = 40;
  return made;
}

}  // namespace copus
