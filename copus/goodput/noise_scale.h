// The gradient noise scale, from squared gradient norms at several batch sizes (McCandlish et al.
// 2018, arXiv 1812.06162, appendix A.1).
//
// For a gradient averaged over B samples, E|G_B|^2 = |G|^2 + tr(S)/B, whatever B is. Each step
// gives a few such norms; a generalised least-squares line through them gives that step's two
// terms, both unbiased. They are smoothed by samples seen, and divided last: a mean of ratios is
// biased.
//
// Plain arithmetic: no clock, no tensors. docs/controller.md derives it.
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
  double g2 = 0;  // |G|^2; of one step it may well be negative
  double s = 0;   // tr(S)
};

// One step's terms. The norms are taken to be nested, as a prefix of a replica's share and that
// share of the global batch are: a norm and that of a larger batch have the larger one's spread in
// common. `expected` sets the weights: it must not come from these same norms, or the fit would be
// biased. Without it, or where its terms are not above 0, noise is taken to dominate. Two batch
// sizes give the pair formula exactly. Norms that are not nested, or expectations that are wrong,
// cost precision and no more.
//
// Norms with no count are left out. Nothing where fewer than two different batch sizes remain, or a
// number is not finite, or a batch is not above 0.
std::optional<NoiseTerms> fit_noise(std::span<const SquaredNorm> norms,
                                    const std::optional<NoiseTerms>& expected = std::nullopt);

struct NoiseEstimate {
  NoiseTerms terms;  // smoothed
  double gns = 0;    // tr(S)/|G|^2, in samples; infinite where |G|^2 is not above 0; at least 0
  double low = 0;    // 95% confidence interval of it (Fieller's, which may reach infinity)
  double high = 0;
  double weight = 0;  // independent steps that it rests on

  // How far apart the ends are: high/low; infinite where one of them says nothing.
  double spread() const;
};

// One estimate of two: of the whole gradient, and of the scales (the norms' weights), whose noise
// scale is the whole one's up to a factor around 1 (Gray et al. 2024, arXiv 2411.00999). Weighted
// by their precision on a log scale; `factor_sd` is the factor's spread there. Where the second is
// all that is known it stands alone. The terms are the first's.
NoiseEstimate combine_estimates(const NoiseEstimate& whole, const NoiseEstimate& scales,
                                double factor_sd);

struct NoiseScaleOptions {
  // A step's weight falls to 1/e after so many samples, but not in fewer than `window_steps` steps.
  double window_samples = 0;
  double window_steps = 40;
};

class NoiseScale {
 public:
  explicit NoiseScale(NoiseScaleOptions options = {}) : options_(options) {}

  // One step; `samples`: consumed since the last one observed. Returns that step's terms; nothing,
  // and nothing changes, where its norms allow no estimate.
  std::optional<NoiseTerms> observe(std::int64_t samples, std::span<const SquaredNorm> norms);
  // Nothing before two steps have been observed.
  std::optional<NoiseEstimate> estimate() const;

  // The whole state: an estimator that was saved and loaded goes on as if it had not been.
  Json to_json() const;
  static Result<NoiseScale> from_json(const Json& json, const std::string& where,
                                      NoiseScaleOptions options = {});

 private:
  NoiseScaleOptions options_;
  // Over steps, each weighted by its decay: sums of weights and of their squares, means of the
  // terms, sums of products of the terms' deviations from their means.
  double weight_ = 0, weight2_ = 0;
  NoiseTerms mean_;
  double g2_g2_ = 0, g2_s_ = 0, s_s_ = 0;
};

}  // namespace copus
