// Draws squared gradient norms at random, as a run with known noise terms would measure them.
#pragma once

#include <random>
#include <vector>

#include "copus/goodput/noise_scale.h"

namespace copus {

struct NormSizes {
  double prefix = 0;   // samples of each replica's first part, which has its own norm
  double replica = 0;  // samples of each replica
  double replicas = 1;
};

// Returns one step's norms, nested as in a run: of every replica's prefix, of every replica, of the
// whole batch. The noise is Gaussian and equal in `rank` directions (tr(S)^2 / tr(S^2)). The rank
// sets how far the norms scatter: by sqrt(2 / rank) where noise dominates.
std::vector<SquaredNorm> sample_norms(const NoiseTerms& truth, double rank, const NormSizes& sizes,
                                      std::mt19937_64& random);

}  // namespace copus
