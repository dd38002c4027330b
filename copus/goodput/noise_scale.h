// The gradient noise scale, from squared gradient norms at several batch sizes (McCandlish et al.
// 2018, arXiv 1812.06162, appendix A.1).
//
// For a gradient averaged over B samples, E|G_B|^2 = |G|^2 + tr(S)/B for every B. Each step gives a
// few such norms. A generalised least-squares line through them gives the two terms of the step,
// both unbiased. The terms are smoothed over samples first and divided last, because a mean of
// ratios is biased.
//
// Pure arithmetic, without clock or tensors. docs/controller.md derives it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "copus/base/json.h"
#include "copus/base/result.h"

namespace copus {

// The mean of `count` squared norms of gradients, each averaged over `batch` samples.
struct SquaredNorm {
  double batch = 0;
  double value = 0;
  double count = 1;
};

struct NoiseTerms {
  double g2 = 0;  // |G|^2; for one step it may be negative
  double s = 0;   // tr(S)
};

// The terms of one step. The norms are assumed to be nested, as a prefix of a replica's share and
// that share of the global batch are: two norms have the variation of the larger batch in common.
// `expected` sets the weights. It must not come from the same norms, because the fit would then be
// biased. Without it, or if its terms are not above 0, noise is assumed to dominate. Two batch
// sizes give the pair formula exactly. Norms that are not nested, or wrong expectations, only cost
// precision.
//
// Norms with count 0 are ignored. Returns nothing if fewer than two different batch sizes remain,
// or if a number is not finite, or a batch is not above 0.
std::optional<NoiseTerms> fit_noise(std::span<const SquaredNorm> norms,
                                    const std::optional<NoiseTerms>& expected = std::nullopt);

struct NoiseEstimate {
  NoiseTerms terms;  // smoothed
  double gns = 0;    // tr(S)/|G|^2, in samples, at least 0; infinite if |G|^2 is not above 0
  double low = 0;    // its 95% confidence interval (Fieller's; the upper end may be infinite)
  double high = 0;
  double weight = 0;  // number of independent steps behind it

  // high/low; infinite if one end is unknown.
  double spread() const;
};

// Combines two estimates: of the whole gradient, and of the gradient of the norms' weights
// ("scales"), whose noise scale is the whole one's up to a factor around 1 (Gray et al. 2024, arXiv
// 2411.00999). They are weighted by their precision on a log scale; `factor_sd` is the spread of
// the factor there. If only the second is known, it is used alone. The terms are the first's.
NoiseEstimate combine_estimates(const NoiseEstimate& whole, const NoiseEstimate& scales,
                                double factor_sd);

struct NoiseScaleOptions {
  // A step's weight falls to 1/e after this many samples, but not within fewer than `window_steps`
  // steps.
  double window_samples = 0;
  double window_steps = 40;
};

class NoiseScale {
 public:
  explicit NoiseScale(NoiseScaleOptions options = {}) : options_(options) {}

  // Adds one step; `samples`: consumed since the last observed step. Returns the terms of that
  // step. If its norms allow no estimate, returns nothing and changes nothing.
  std::optional<NoiseTerms> observe(std::int64_t samples, std::span<const SquaredNorm> norms);
  // Nothing until two steps have been observed.
  std::optional<NoiseEstimate> estimate() const;

  // The whole state. An estimator that was saved and loaded continues exactly as before.
  Json to_json() const;
  static Result<NoiseScale> from_json(const Json& json, const std::string& where,
                                      NoiseScaleOptions options = {});

 private:
  NoiseScaleOptions options_;
  // Over steps, each weighted by its decay: sums of the weights and of their squares, means of the
  // terms, and sums of products of the terms' deviations from their means.
  double weight_ = 0, weight2_ = 0;
  NoiseTerms mean_;
  double g2_g2_ = 0, g2_s_ = 0, s_s_ = 0;
};

}  // namespace copus
