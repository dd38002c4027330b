// Statistical efficiency of a batch, Goodput, and the learning rate for a batch.
#pragma once

#include <array>
#include <string_view>

#include "copus/base/result.h"

namespace copus {

// Progress per sample at batch B, relative to a very small batch: 1/(1 + B/Bcrit) (McCandlish et
// al. 2018, section 2.3). 1 if the critical batch is infinite, 0 if it is 0. REQUIRES: batch > 0.
double statistical_efficiency(double batch, double critical_batch);

enum class GoodputKind {
  kPlain,    // samples/s x efficiency
  kLrAware,  // that x sqrt(batch), because a larger batch also takes larger steps (COPUS)
};
inline constexpr std::array kGoodputKinds = {GoodputKind::kPlain, GoodputKind::kLrAware};
std::string_view to_string(GoodputKind kind);

// How the progress per sample depends on the batch: 1/(1 + (B/Bcrit)^k)^(1/k), with Bcrit a
// multiple of the noise scale, and for lr-aware Goodput times the square root of the batch.
struct BatchLaw {
  double calibration = 2;  // critical batch / noise scale
  double sharpness = 1;    // k; the published law has 1
  GoodputKind kind = GoodputKind::kPlain;

  // In units that are the same for all batches, but not for all laws. REQUIRES: batch, gns > 0.
  double progress_per_sample(double batch, double gns) const;
};

// One of the laws that a belief is a mixture of.
struct WeightedLaw {
  double weight = 1;  // all weights add up to 1
  BatchLaw law;
};

// Values can be compared between batches and layouts, but not between kinds. REQUIRES: batch > 0.
double goodput(GoodputKind kind, double samples_per_s, double batch, double critical_batch);

// The factor on the learning rate at `batch`, if the schedule is meant for `base_batch`: the
// square-root rule of Adam (Malladi et al. 2022). REQUIRES: both above 0.
double learning_rate_factor(double batch, double base_batch);

}  // namespace copus
