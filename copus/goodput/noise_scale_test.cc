#include "copus/goodput/noise_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "copus/goodput/goodput_testing.h"

namespace copus {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The expected norm of `count` gradients.
SquaredNorm exact(const NoiseTerms& terms, double batch, double count = 1) {
  return {batch, terms.g2 + terms.s / batch, count};
}

TEST(FitNoise, OfTwoSizesIsThePairFormula) {
  for (const double small : {1.0, 4.0}) {
    for (const double big : {8.0, 512.0}) {
      const SquaredNorm norms[] = {{small, 7.3, 4}, {big, 1.9, 1}};
      const double g2 = (big * 1.9 - small * 7.3) / (big - small);
      const double s = (7.3 - 1.9) / (1 / small - 1 / big);
      for (const auto& expected :
           {std::optional<NoiseTerms>(), std::optional(NoiseTerms{1, 0.1}),
            std::optional(NoiseTerms{1, 1000}), std::optional(NoiseTerms{-1, 5})}) {
        const NoiseTerms terms = fit_noise(norms, expected).value();
        EXPECT_NEAR(terms.g2, g2, 1e-12 * std::abs(g2) + 1e-12);
        EXPECT_NEAR(terms.s, s, 1e-12 * s);
      }
    }
  }
}

TEST(FitNoise, RecoversBothTermsExactlyWhereNormsAreExact) {
  for (const NoiseTerms truth : {NoiseTerms{2, 0.5}, NoiseTerms{2, 100}, NoiseTerms{0.01, 1e6}}) {
    // Order, expectation and counts make no difference, even counts that contradict the nesting.
    const SquaredNorm norms[] = {exact(truth, 64), exact(truth, 4, 4), exact(truth, 16, 4),
                                 exact(truth, 2, 100), exact(truth, 16, 2)};
    for (const NoiseTerms& expected : {truth, NoiseTerms{1e9, 1}, NoiseTerms{-1, -1}}) {
      const NoiseTerms terms = fit_noise(norms, expected).value();
      EXPECT_NEAR(terms.g2, truth.g2, 1e-9 * (truth.g2 + truth.s));
      EXPECT_NEAR(terms.s, truth.s, 1e-9 * truth.s);
    }
  }
}

TEST(FitNoise, NeedsTwoSizesThatMakeSense) {
  EXPECT_FALSE(fit_noise({}));
  EXPECT_FALSE(fit_noise({{{4, 1, 1}}}));
  EXPECT_FALSE(fit_noise({{{4, 1, 1}, {4, 2, 8}}}));  // one size
  EXPECT_FALSE(fit_noise({{{4, 1, 1}, {8, 2, 0}}}));  // the other has no count
  EXPECT_FALSE(fit_noise({{{4, 1, 1}, {8, 2, -1}}}));
  EXPECT_FALSE(fit_noise({{{4, 1, 1}, {0, 2, 1}}}));
  EXPECT_FALSE(fit_noise({{{4, 1, 1}, {-8, 2, 1}}}));
  for (const double bad : {kNaN, kInfinity, -kInfinity}) {
    EXPECT_FALSE(fit_noise({{{4, 1, 1}, {8, bad, 1}}})) << bad;
    EXPECT_FALSE(fit_noise({{{4, 1, 1}, {bad, 2, 1}}})) << bad;
    EXPECT_FALSE(fit_noise({{{2, 3, 1}, {4, 1, 1}, {8, bad, 1}}})) << bad;
  }
  EXPECT_FALSE(fit_noise({{{4, 1, 1}, {8, 2, kNaN}}}));
  // Norms with count 0 are ignored, even invalid ones.
  EXPECT_TRUE(fit_noise({{{4, 1, 1}, {8, 2, 1}, {2, kNaN, 0}}}));
  // Invalid expectations are ignored too.
  EXPECT_TRUE(fit_noise({{{2, 3, 1}, {4, 1, 1}, {8, 2, 1}}}, NoiseTerms{kNaN, kInfinity}));
  EXPECT_TRUE(fit_noise({{{2, 3, 1}, {4, 1, 1}, {8, 2, 1}}}, NoiseTerms{1e300, 1e-300}));
}

// Steps on a quadratic: the gradient of a sample is the true one plus Gaussian noise with variances
// 1, 1/2, 1/3, … over 200 dimensions. Means over groups of samples are drawn as such, each
// replica's prefix, its rest, and from them its share and the global batch: nested as in a real
// step. The true gradient is a constant times `direction`, so that one draw serves every noise
// scale.
class Quadratic {
 public:
  static constexpr std::size_t kDimensions = 200;
  static constexpr double kPrefix = 4;

  explicit Quadratic(std::uint64_t seed) : random_(seed) {
    double square = 0;
    for (std::size_t i = 0; i < kDimensions; ++i) {
      deviation_[i] = std::sqrt(1 / static_cast<double>(i + 1));
      direction_[i] = std::sqrt(deviation_[i]);  // leans towards the noise, as real gradients do
      trace_ += deviation_[i] * deviation_[i];
      square += direction_[i] * direction_[i];
    }
    for (double& x : direction_) x /= std::sqrt(square);
  }

  NoiseTerms truth(double gns) const { return {trace_ / gns, trace_}; }

  struct Draw {
    double batch = 0;
    double count = 0;
    double along = 0;   // noise along `direction`: the mean over the groups
    double square = 0;  // the noise's squared norm
  };
  // Prefix, replica (where there are several) and global.
  std::vector<Draw> step(double batch, int dp) {
    const double share = batch / dp, rest = share - kPrefix, groups = dp;
    Draw prefix = {kPrefix, groups}, replica = {share, groups}, global = {batch, 1};
    for (std::size_t i = 0; i < kDimensions; ++i) {
      double sum = 0;
      for (int r = 0; r < dp; ++r) {
        const double first = deviation_[i] / std::sqrt(kPrefix) * normal_(random_);
        const double later = rest > 0 ? deviation_[i] / std::sqrt(rest) * normal_(random_) : 0;
        const double whole = (kPrefix * first + rest * later) / share;
        prefix.along += direction_[i] * first / groups;
        prefix.square += first * first / groups;
        replica.square += whole * whole / groups;
        sum += whole / groups;
      }
      replica.along += direction_[i] * sum;
      global.square += sum * sum;
    }
    global.along = replica.along;
    if (dp == 1) return {prefix, global};
    return {prefix, replica, global};
  }

  // The norms of these draws for a true gradient of this size.
  std::vector<SquaredNorm> norms(const std::vector<Draw>& draws, double gns) const {
    const double g = std::sqrt(truth(gns).g2);
    std::vector<SquaredNorm> norms;
    norms.reserve(draws.size());
    for (const Draw& draw : draws) {
      norms.push_back({draw.batch, g * g + 2 * g * draw.along + draw.square, draw.count});
    }
    return norms;
  }
  std::vector<SquaredNorm> norms(double batch, int dp, double gns) {
    return norms(step(batch, dp), gns);
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::array<double, kDimensions> deviation_{}, direction_{};
  double trace_ = 0;
};

struct Moments {
  double n = 0, sum = 0, squares = 0;
  void add(double x) {
    ++n;
    sum += x;
    squares += x * x;
  }
  double mean() const { return sum / n; }
  double variance() const { return (squares - sum * sum / n) / (n - 1); }
  double standard_error() const { return std::sqrt(variance() / n); }
};

// Fixed seeds fix the draws, so a bound of 3 standard errors always gives the same result.
void expect_unbiased(const Moments& found, double truth) {
  EXPECT_NEAR(found.mean(), truth, 3 * found.standard_error());
}

TEST(NoiseScale, IsUnbiasedAndItsIntervalCoversTheTruthAsOftenAsItSays) {
  constexpr int kTrials = 1000, kSteps = 50, kBatch = 64;
  constexpr std::array kScales = {4.0, 64.0,
                                  1024.0};  // far below the batch, equal to it, far above
  for (const int dp : {1, 4}) {
    Quadratic quadratic(17);
    struct Found {
      Moments g2, s;
      int covered = 0, bounded = 0;
      std::vector<double> gns;
    };
    std::array<Found, kScales.size()> found;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::array<NoiseScale, kScales.size()> scales;
      for (int step = 0; step < kSteps; ++step) {
        const auto draws = quadratic.step(kBatch, dp);
        for (std::size_t i = 0; i < scales.size(); ++i) {
          scales[i].observe(kBatch, quadratic.norms(draws, kScales[i]));
        }
      }
      for (std::size_t i = 0; i < scales.size(); ++i) {
        const NoiseEstimate estimate = scales[i].estimate().value();
        found[i].g2.add(estimate.terms.g2);
        found[i].s.add(estimate.terms.s);
        found[i].gns.push_back(estimate.gns);
        found[i].covered += estimate.low <= kScales[i] && kScales[i] <= estimate.high;
        found[i].bounded += std::isfinite(estimate.high);
        EXPECT_LE(estimate.low, estimate.gns);
        EXPECT_GE(estimate.high, estimate.gns);
      }
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      const NoiseTerms truth = quadratic.truth(kScales[i]);
      auto& [g2, s, covered, bounded, gns] = found[i];
      std::ranges::nth_element(gns, gns.begin() + kTrials / 2);
      std::printf(
          "dp=%d, scale %4.0f at batch %d: covered %.1f%%, bounded %.1f%%, median %.1f; bias of "
          "|G|^2 %+.2f%% (%+.1f se), of tr(S) %+.2f%% (%+.1f se)\n",
          dp, kScales[i], kBatch, 100.0 * covered / kTrials, 100.0 * bounded / kTrials,
          gns[kTrials / 2], 100 * (g2.mean() / truth.g2 - 1),
          (g2.mean() - truth.g2) / g2.standard_error(), 100 * (s.mean() / truth.s - 1),
          (s.mean() - truth.s) / s.standard_error());
      SCOPED_TRACE(testing::Message() << "dp " << dp << ", scale " << kScales[i]);
      expect_unbiased(g2, truth.g2);
      expect_unbiased(s, truth.s);
      EXPECT_GE(covered, 0.92 * kTrials);
      EXPECT_LE(covered, 0.98 * kTrials);
    }
  }
}

TEST(FitNoise, OfThreeSizesIsNoLessPreciseThanAnyPair) {
  constexpr int kSteps = 4000;
  for (const int dp : {2, 4}) {
    Quadratic quadratic(5);
    for (const double gns : {1.0, 16.0, 256.0}) {
      const NoiseTerms truth = quadratic.truth(gns);
      // For each fit: both terms and their ratio, to first order.
      using Spread = std::array<Moments, 3>;
      auto add = [&](Spread& to, const NoiseTerms& terms) {
        to[0].add(terms.g2 / truth.g2);
        to[1].add(terms.s / truth.s);
        to[2].add(terms.s / truth.s - terms.g2 / truth.g2);
      };
      Spread all, pairs[3];
      for (int step = 0; step < kSteps; ++step) {
        const std::vector<SquaredNorm> norms = quadratic.norms(64, dp, gns);
        add(all, fit_noise(norms, truth).value());
        for (std::size_t left_out = 0; left_out < 3; ++left_out) {
          std::vector<SquaredNorm> pair = norms;
          pair.erase(pair.begin() + static_cast<std::ptrdiff_t>(left_out));
          add(pairs[left_out], fit_noise(pair).value());
        }
      }
      SCOPED_TRACE(testing::Message() << "dp " << dp << ", scale " << gns);
      for (std::size_t of = 0; of < 3; ++of) {
        const double least =
            std::min({pairs[0][of].variance(), pairs[1][of].variance(), pairs[2][of].variance()});
        EXPECT_LE(all[of].variance(), 1.03 * least) << of;
      }
      std::printf("dp=%d, scale %4.0f: variance of the ratio, of the pairs': %.2f, %.2f, %.2f\n",
                  dp, gns, all[2].variance() / pairs[0][2].variance(),
                  all[2].variance() / pairs[1][2].variance(),
                  all[2].variance() / pairs[2][2].variance());
    }
  }
}

TEST(NoiseScale, FollowsAStepOfTheTruthWithinAFewWindows) {
  constexpr int kTrials = 50, kBatch = 32, kWindow = 20;
  constexpr double kBefore = 8, kAfter = 64;
  Quadratic quadratic(3);
  Moments g2, s;
  int outgrown = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    NoiseScale scale({.window_steps = kWindow});
    for (int step = 0; step < 5 * kWindow; ++step) {
      scale.observe(kBatch, quadratic.norms(kBatch, 4, kBefore));
    }
    for (int step = 0; step < 5 * kWindow; ++step) {
      scale.observe(kBatch, quadratic.norms(kBatch, 4, kAfter));
    }
    const NoiseEstimate estimate = scale.estimate().value();
    g2.add(estimate.terms.g2);
    s.add(estimate.terms.s);
    outgrown += estimate.low > kBefore;
  }
  EXPECT_EQ(outgrown, kTrials);
  // The old |G|^2 was eight times as large; e^-5 of it is left.
  EXPECT_NEAR(s.mean() / g2.mean() / kAfter, 1, 0.1);
}

TEST(NoiseScale, ForgetsBySamplesNotBySteps) {
  const NoiseTerms first = {1, 100}, later = {1, 0};
  auto left_of_first = [&](std::int64_t samples, int steps, NoiseScaleOptions options) {
    NoiseScale scale(options);
    scale.observe(samples, {{exact(first, 4), exact(first, 16)}});
    for (int step = 0; step < steps; ++step) {
      scale.observe(samples, {{exact(later, 4), exact(later, 16)}});
    }
    const Json state = scale.to_json();
    return state["s"].get<double>() * state["weight"].get<double>() / 100;
  };
  const NoiseScaleOptions by_samples = {.window_samples = 320, .window_steps = 5};
  EXPECT_NEAR(left_of_first(16, 2, by_samples), std::exp(-32.0 / 320), 1e-12);
  EXPECT_NEAR(left_of_first(32, 1, by_samples), std::exp(-32.0 / 320), 1e-12);
  // If the window of samples has fewer than window_steps steps, the steps count.
  EXPECT_NEAR(left_of_first(640, 1, by_samples), std::exp(-1.0 / 5), 1e-12);
  EXPECT_NEAR(left_of_first(1 << 20, 10, by_samples), std::exp(-10.0 / 5), 1e-12);
}

TEST(NoiseScale, DoesNotJumpWhereTheBatchOrTheLayoutChanges) {
  constexpr int kTrials = 100, kSteps = 40;
  constexpr double kScale = 48;
  struct {
    int batch, dp, to_batch, to_dp;
    bool noisier;  // a step then tells less: the estimate may leave the narrower interval
  } const changes[] = {{32, 4, 64, 4, false}, {32, 1, 32, 4, false}, {32, 4, 32, 1, true}};
  for (const auto& change : changes) {
    SCOPED_TRACE(testing::Message() << "to batch " << change.to_batch << ", dp " << change.to_dp);
    Quadratic quadratic(29);
    Moments g2, s;
    int within = 0, overlapping = 0, covered = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      NoiseScale scale({.window_samples = 32 * kSteps, .window_steps = 20});
      for (int step = 0; step < 2 * kSteps; ++step) {
        scale.observe(change.batch, quadratic.norms(change.batch, change.dp, kScale));
      }
      const NoiseEstimate before = scale.estimate().value();
      for (int step = 0; step < kSteps; ++step) {
        scale.observe(change.to_batch, quadratic.norms(change.to_batch, change.to_dp, kScale));
      }
      const NoiseEstimate after = scale.estimate().value();
      g2.add(after.terms.g2 - before.terms.g2);
      s.add(after.terms.s - before.terms.s);
      within += before.low <= after.gns && after.gns <= before.high;
      overlapping += before.low <= after.high && after.low <= before.high;
      covered += after.low <= kScale && kScale <= after.high;
    }
    expect_unbiased(g2, 0);
    expect_unbiased(s, 0);
    EXPECT_GE(covered, 0.9 * kTrials);
    EXPECT_EQ(overlapping, kTrials);
    if (!change.noisier) {
      EXPECT_GE(within, 0.9 * kTrials);
    }
  }
}

TEST(NoiseScale, NarrowsItsIntervalWithSteps) {
  Quadratic quadratic(11);
  NoiseScale scale({.window_steps = 1e6});
  double before = kInfinity;
  for (const int steps : {10, 90, 900}) {
    for (int step = 0; step < steps; ++step) scale.observe(64, quadratic.norms(64, 4, 32));
    const NoiseEstimate estimate = scale.estimate().value();
    EXPECT_LT(estimate.spread(), before);
    before = estimate.spread();
  }
  EXPECT_NEAR(scale.estimate()->weight, 1000, 0.1);
  EXPECT_LT(before, 1.2);
}

TEST(NoiseScale, RestsOnAboutTwoWindowsOfStepsAtMost) {
  NoiseScale scale({.window_steps = 40});
  const NoiseTerms truth = {1, 20};
  for (int step = 0; step < 1000; ++step) {
    scale.observe(16, {{exact(truth, 4), exact(truth, 16)}});
  }
  EXPECT_NEAR(scale.estimate()->weight, 80, 0.1);
}

TEST(NoiseScale, HasNoEstimateBeforeTwoSteps) {
  NoiseScale scale;
  EXPECT_FALSE(scale.estimate());
  const NoiseTerms truth = {1, 20};
  const SquaredNorm norms[] = {exact(truth, 4), exact(truth, 16)};
  EXPECT_TRUE(scale.observe(16, norms));
  EXPECT_FALSE(scale.estimate());
  EXPECT_TRUE(scale.observe(16, norms));
  const NoiseEstimate estimate = scale.estimate().value();
  EXPECT_NEAR(estimate.gns, 20, 1e-9);
  EXPECT_NEAR(estimate.spread(), 1, 1e-9);
}

TEST(NoiseScale, PassesOverStepsThatSayNothing) {
  NoiseScale scale;
  const NoiseTerms truth = {1, 20};
  for (const double off : {0.0, 1.0, 3.0}) {
    scale.observe(16, {{exact(truth, 4), {16, 2.25 + off, 1}}});
  }
  const Json before = scale.to_json();
  EXPECT_FALSE(scale.observe(16, {}));
  EXPECT_FALSE(scale.observe(16, {{{4, 1, 1}}}));
  EXPECT_FALSE(scale.observe(16, {{{4, kNaN, 1}, {16, 1, 1}}}));
  EXPECT_FALSE(scale.observe(16, {{{4, 1e300, 1}, {16, 1, 1}}}));
  EXPECT_FALSE(scale.observe(0, {{exact(truth, 4), exact(truth, 16)}}));
  EXPECT_EQ(scale.to_json(), before);
}

// Steps with the given terms.
NoiseEstimate estimate_of(const std::vector<NoiseTerms>& steps) {
  NoiseScale scale({.window_steps = 1e9});
  for (const NoiseTerms& terms : steps) scale.observe(16, {{exact(terms, 4), exact(terms, 16)}});
  return scale.estimate().value();
}

TEST(NoiseEstimate, HasAnOpenIntervalWhereTheGradientMayBeZero) {
  // |G|^2 of 0.5, with a standard error of 0.5.
  const NoiseEstimate unsure = estimate_of({{1.5, 90}, {-0.5, 110}, {1.0, 105}, {0.0, 95}});
  EXPECT_NEAR(unsure.gns, 200, 1e-6);
  EXPECT_EQ(unsure.high, kInfinity);
  EXPECT_GT(unsure.low, 0);
  EXPECT_LT(unsure.low, unsure.gns);
  EXPECT_EQ(unsure.spread(), kInfinity);

  const NoiseEstimate below = estimate_of({{0.5, 90}, {-1.5, 110}, {0.2, 105}, {-1.0, 95}});
  EXPECT_EQ(below.gns, kInfinity);
  EXPECT_EQ(below.high, kInfinity);
  EXPECT_GT(below.low, 0);
}

TEST(NoiseEstimate, SaysNothingWhereTheTermsContradictThemselves) {
  const NoiseEstimate estimate = estimate_of({{-1.01, 90}, {-0.99, 110}, {-1, 105}, {-1, 95}});
  EXPECT_EQ(estimate.gns, kInfinity);
  EXPECT_EQ(estimate.low, 0);
  EXPECT_EQ(estimate.high, kInfinity);
}

TEST(NoiseEstimate, NeverGoesBelowZero) {
  const NoiseEstimate estimate = estimate_of({{1.1, -2}, {0.9, 1}, {1.05, -3}, {0.95, 2}});
  EXPECT_EQ(estimate.gns, 0);
  EXPECT_EQ(estimate.low, 0);
  EXPECT_GT(estimate.high, 0);
  EXPECT_LT(estimate.high, 10);
  EXPECT_EQ(estimate.spread(), kInfinity);
}

TEST(NoiseEstimate, IsStudentsWhereOneTermIsKnown) {
  // With |G|^2 = 1 in each step, Fieller's interval is that of the mean of tr(S): 10, with a
  // deviation of sqrt(5/2) over 5 steps, and t = 2.776 at four degrees of freedom.
  const NoiseEstimate estimate = estimate_of({{1, 8}, {1, 9}, {1, 10}, {1, 11}, {1, 12}});
  const double half = 2.776 * std::sqrt(2.5 / 5);
  EXPECT_NEAR(estimate.low, 10 - half, 2e-3);
  EXPECT_NEAR(estimate.high, 10 + half, 2e-3);
}

TEST(NoiseScaleState, GoesOnAsIfItHadNotBeenSaved) {
  Quadratic quadratic(2);
  const NoiseScaleOptions options = {.window_samples = 1000, .window_steps = 10};
  NoiseScale kept(options);
  for (int step = 0; step < 30; ++step) {
    const auto text = kept.to_json().dump();
    NoiseScale loaded =
        NoiseScale::from_json(parse_json(text, "state").value(), "state", options).value();
    const auto norms = quadratic.norms(64, 4, 256);
    kept.observe(64, norms);
    loaded.observe(64, norms);
    EXPECT_EQ(kept.to_json(), loaded.to_json());
  }
}

TEST(NoiseScaleState, ThatMakesNoSenseIsRefusedByName) {
  auto error = [](std::string_view key, const Json& value) {
    Json state = {{"weight", 2.0}, {"weight2", 1.5}, {"g2", 1.0}, {"s", 3.0},
                  {"g2_g2", 4.0},  {"g2_s", -1.0},   {"s_s", 1.0}};
    EXPECT_TRUE(NoiseScale::from_json(state, "noise"));
    state[std::string(key)] = value;
    const auto result = NoiseScale::from_json(state, "noise");
    return result ? std::string("none") : result.error().message;
  };
  EXPECT_EQ(error("weight", -1), "noise: weight: got -1; want a number of 0 or more");
  EXPECT_EQ(error("weight", 0.5), "noise: weight: got 0.5; want 0, or 1 or more");
  EXPECT_EQ(error("weight2", 3), "noise: weight2: got 3; want 1 to 2, which is weight");
  EXPECT_EQ(error("weight2", 0), "noise: weight2: got 0; want 1 to 2, which is weight");
  EXPECT_EQ(error("g2", "nan"), "noise: g2: got \"nan\"; want a number");
  EXPECT_EQ(error("g2", nullptr), "noise: g2: missing; want a number");
  EXPECT_EQ(error("s_s", -1e-9), "noise: s_s: got -1e-09; want a number of 0 or more");
  EXPECT_EQ(error("g2_s", 2.5),
            "noise: g2_s: got 2.5; want at most 2 either way, sqrt(g2_g2 * s_s)");
  EXPECT_NE(error("weigth", 1).find("weigth"), std::string::npos);
  EXPECT_FALSE(NoiseScale::from_json(Json::array(), "noise"));
}

}  // namespace
}  // namespace copus
