// Squared gradient norms as a run would measure them, drawn at random about known terms.
#pragma once

#include <random>
#include <vector>

#include "copus/goodput/noise_scale.h"

namespace copus {

struct NormSizes {
  double prefix = 0;   // samples of each replica whose norm is taken first
  double replica = 0;  // samples of each replica
  double replicas = 1;
};

// One step's norms: every replica's prefix, every replica, all: nested, as a run's are. The noise
// is Gaussian and alike in `rank` directions (tr(S)^2 / tr(S^2)), which sets how far the norms
// scatter: by sqrt(2 / rank) where noise dominates.
std::vector<SquaredNorm> sample_norms(const NoiseTerms& truth, double rank, const NormSizes& sizes,
                                      std::mt19937_64& random);

}  // namespace copus
