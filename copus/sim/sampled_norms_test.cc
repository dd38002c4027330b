#include "copus/sim/sampled_norms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace copus {
namespace {

// Means and covariances of the norms of one step, over many draws.
struct Moments {
  std::vector<double> mean;
  std::vector<std::vector<double>> covariance;

  double sd(std::size_t i) const { return std::sqrt(covariance[i][i]); }
};

Moments moments_of(int draws, const std::function<std::vector<double>()>& draw) {
  std::vector<std::vector<double>> all;
  all.reserve(static_cast<std::size_t>(draws));
  for (int i = 0; i < draws; ++i) all.push_back(draw());
  const std::size_t n = all.front().size();
  Moments out{std::vector<double>(n, 0), {n, std::vector<double>(n, 0)}};
  for (const auto& norms : all) {
    for (std::size_t i = 0; i < n; ++i) out.mean[i] += norms[i] / draws;
  }
  for (const auto& norms : all) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        out.covariance[i][j] += (norms[i] - out.mean[i]) * (norms[j] - out.mean[j]) / draws;
      }
    }
  }
  return out;
}

Moments moments_of(int draws, const NoiseTerms& truth, double rank, const NormSizes& sizes,
                   std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return moments_of(draws, [&] {
    std::vector<double> values;
    for (const SquaredNorm& norm : sample_norms(truth, rank, sizes, random)) {
      values.push_back(norm.value);
    }
    return values;
  });
}

TEST(SampledNorms, AreThoseThatARunHas) {
  std::mt19937_64 random(1);
  const auto batches = [&](const NormSizes& sizes) {
    std::vector<std::pair<double, double>> out;
    for (const SquaredNorm& norm : sample_norms({1, 50}, 100, sizes, random)) {
      out.emplace_back(norm.batch, norm.count);
    }
    return out;
  };
  using All = std::vector<std::pair<double, double>>;
  EXPECT_EQ(batches({2, 8, 4}), (All{{2, 4}, {8, 4}, {32, 1}}));
  EXPECT_EQ(batches({8, 8, 4}), (All{{8, 4}, {32, 1}}));
  EXPECT_EQ(batches({2, 8, 1}), (All{{2, 1}, {8, 1}}));
}

TEST(SampledNorms, MeanIsTheGradientsNormAndItsShareOfTheNoise) {
  constexpr int kDraws = 20000;
  for (const NoiseTerms& truth : {NoiseTerms{1, 50}, NoiseTerms{1, 2}, NoiseTerms{1, 2000}}) {
    for (const NormSizes& sizes :
         {NormSizes{2, 16, 1}, NormSizes{1, 2, 8}, NormSizes{2, 16, 8}, NormSizes{4, 4, 8}}) {
      std::mt19937_64 random(3);
      const std::vector<SquaredNorm> shape = sample_norms(truth, 100, sizes, random);
      const Moments moments = moments_of(kDraws, truth, 100, sizes, 7);
      for (std::size_t i = 0; i < shape.size(); ++i) {
        const double standard_error = moments.sd(i) / std::sqrt(kDraws);
        EXPECT_NEAR(moments.mean[i], truth.g2 + truth.s / shape[i].batch, 4 * standard_error)
            << "s " << truth.s << ", batch " << shape[i].batch << " of " << sizes.replicas;
      }
    }
  }
}

TEST(SampledNorms, ScatterByTheRankWhereNoiseDominates) {
  for (const double rank : {20.0, 100.0, 1000.0}) {
    const double expected = std::sqrt(2 / rank);
    const Moments moments = moments_of(20000, {0, 1}, rank, {2, 8, 4}, 5);
    EXPECT_NEAR(moments.sd(2) / moments.mean[2], expected, 0.03 * expected);  // of the whole batch
    // Each of four replicas has its own noise.
    EXPECT_NEAR(moments.sd(1) / moments.mean[1], expected / 2, 0.03 * expected);
    EXPECT_NEAR(moments.sd(0) / moments.mean[0], expected / 2, 0.03 * expected);
  }
}

// Compares with norms of gradients that are drawn sample by sample.
TEST(SampledNorms, ScatterTogetherAsThoseOfRealGradients) {
  constexpr int kDraws = 40000, kRank = 6, kReplicas = 3, kReplica = 4, kPrefix = 2;
  for (const double g2 : {0.0, 2.0, 40.0}) {
    const NoiseTerms truth{g2, 12};
    std::mt19937_64 random(11);
    std::normal_distribution<double> normal(0, std::sqrt(truth.s / kRank));
    using Vector = std::array<double, kRank>;
    const auto squared = [](const Vector& sum, double samples) {
      double total = 0;
      for (const double x : sum) total += x / samples * (x / samples);
      return total;
    };
    const Moments real = moments_of(kDraws, [&] {
      Vector all{};
      double prefixes = 0, replicas = 0;
      for (int r = 0; r < kReplicas; ++r) {
        Vector sum{};
        for (int sample = 1; sample <= kReplica; ++sample) {
          for (double& x : sum) x += normal(random);
          sum[0] += std::sqrt(g2);
          if (sample == kPrefix) prefixes += squared(sum, kPrefix) / kReplicas;
        }
        replicas += squared(sum, kReplica) / kReplicas;
        for (std::size_t d = 0; d < all.size(); ++d) all[d] += sum[d];
      }
      return std::vector<double>{prefixes, replicas, squared(all, kReplicas * kReplica)};
    });
    const Moments drawn = moments_of(kDraws, truth, kRank, {kPrefix, kReplica, kReplicas}, 13);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(drawn.mean[i], real.mean[i], 0.02 * real.mean[i]) << "g2 " << g2 << ": " << i;
      for (std::size_t j = 0; j < 3; ++j) {
        EXPECT_NEAR(drawn.covariance[i][j], real.covariance[i][j], 0.04 * real.sd(i) * real.sd(j))
            << "g2 " << g2 << ": " << i << ", " << j;
      }
    }
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

TEST(SampledNorms, GiveANoiseScaleWithoutBias) {
  for (const NormSizes& sizes :
       {NormSizes{2, 64, 1}, NormSizes{2, 8, 8}, NormSizes{8, 8, 8}, NormSizes{4, 16, 2}}) {
    const NoiseTerms truth{1, 60};
    std::vector<double> ratios;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      std::mt19937_64 random(seed);
      NoiseScale scale({0, 200});
      const auto batch = static_cast<std::int64_t>(sizes.replica * sizes.replicas);
      for (int step = 0; step < 400; ++step) {
        scale.observe(batch, sample_norms(truth, 100, sizes, random));
      }
      ratios.push_back(scale.estimate()->gns / truth.s);
    }
    EXPECT_NEAR(median(ratios), 1, 0.03) << sizes.prefix << " of " << sizes.replica;
  }
}

// Nested norms share their noise, so the fitted norm of the true gradient (g2) has less of it: with
// R replicas (R-1)/(R+1) of the variance that norms of different steps give.
TEST(SampledNorms, NestedOnesTellMoreThanIndependentOnes) {
  for (const double replicas : {2.0, 4.0, 8.0}) {
    const NoiseTerms truth{0.01, 60};
    const NormSizes sizes{4, 4, replicas};
    std::mt19937_64 random(17);
    const auto step = [&] { return sample_norms(truth, 100, sizes, random); };
    const auto g2 = [&](const std::vector<SquaredNorm>& norms) {
      return std::vector<double>{fit_noise(norms)->g2};
    };
    const Moments nested = moments_of(20000, [&] { return g2(step()); });
    const Moments apart = moments_of(20000, [&] { return g2({step().front(), step().back()}); });
    EXPECT_NEAR(nested.covariance[0][0] / apart.covariance[0][0], (replicas - 1) / (replicas + 1),
                0.04)
        << replicas;
  }
}

}  // namespace
}  // namespace copus
