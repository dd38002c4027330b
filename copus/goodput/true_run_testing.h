// TrueRun: an invented run with a known critical batch, for tests of what can be learned about it.
#pragma once

#include <cmath>
#include <random>

#include "copus/goodput/calibration_belief.h"

namespace copus {

// A run from new weights whose loss falls with its progress as a power law, and whose noise scale
// grows with it.
struct TrueRun {
  BatchLaw law;
  double loss_noise = 0.4;  // of one sample
  double gns_noise = 0.15;  // relative
  double floor = 1.7, scale = 2e5, decay = 0.3;
  std::mt19937_64 random{1};

  double progress = 1e3, samples = 0;

  double gns() const { return 10 * std::pow(progress / 2e4, 0.6); }
  double loss() const { return floor + std::pow(scale / progress, decay); }

  LossReport step(std::int64_t batch) {
    const auto b = static_cast<double>(batch);
    std::normal_distribution<double> normal;
    const double truth = gns();
    const double unit = law.kind == GoodputKind::kLrAware ? 4 : 1;  // the first batch's root
    progress += b * law.progress_per_sample(b, truth) / unit;
    samples += b;
    return {batch, loss() + loss_noise / std::sqrt(b) * normal(random),
            truth * std::exp(gns_noise * normal(random)), 1};
  }
};

}  // namespace copus
