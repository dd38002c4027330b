// Draws the norms of one step without drawing gradients.
//
// There are R replicas of n samples with a prefix of p samples. u_r and w_r are the unit noises of
// the prefix's and of the replica's gradient; their correlation is sqrt(p/n). W = sum(w_r) /
// sqrt(R) is the unit noise of the mean gradient. The norms follow from |W|^2, sum |w_r|^2,
// sum |u_r|^2 and two projections on the gradient. Each of these is drawn from its distribution
// given the others, so the cost of a step does not grow with replicas or dimensions.
#include "copus/sim/sampled_norms.h"

#include <algorithm>
#include <cmath>

namespace copus {
namespace {

class Draw {
 public:
  explicit Draw(std::mt19937_64& random) : random_(random) {}
  double normal() { return normal_(random_); }
  double chi_squared(double freedom) {
    return freedom <= 0 ? 0 : 2 * std::gamma_distribution<double>(freedom / 2)(random_);
  }

 private:
  std::mt19937_64& random_;
  std::normal_distribution<double> normal_;
};

}  // namespace

std::vector<SquaredNorm> sample_norms(const NoiseTerms& truth, double rank, const NormSizes& sizes,
                                      std::mt19937_64& random) {
  Draw draw(random);
  const double r = sizes.replicas;
  const double along_all = draw.normal();  // W along the gradient
  const double all = along_all * along_all + draw.chi_squared(rank - 1);
  const double replicas = all + draw.chi_squared((r - 1) * rank);
  const double shared = std::min(1.0, sizes.prefix / sizes.replica);
  const double own = 1 - shared;
  const double cross = draw.normal();
  const double prefixes = shared * replicas + 2 * std::sqrt(shared * own * replicas) * cross +
                          own * (cross * cross + draw.chi_squared(r * rank - 1));
  const double along_prefixes = std::sqrt(shared) * along_all + std::sqrt(own) * draw.normal();

  const double variance = truth.s / rank;  // of one sample, in one direction
  const double length = std::sqrt(std::max(0.0, truth.g2));
  // The mean over replicas of |G + noise|^2, each noise averaged over `samples`.
  const auto mean_square = [&](double samples, double along, double squares) {
    return truth.g2 + 2 * length * std::sqrt(variance / samples / r) * along +
           variance / samples * squares / r;
  };
  std::vector<SquaredNorm> norms;
  if (sizes.prefix < sizes.replica) {
    norms.push_back({sizes.prefix, mean_square(sizes.prefix, along_prefixes, prefixes), r});
  }
  if (r > 1) norms.push_back({sizes.replica, mean_square(sizes.replica, along_all, replicas), r});
  const double total = sizes.replica * r;
  norms.push_back(
      {total,
       truth.g2 + 2 * length * std::sqrt(variance / total) * along_all + variance / total * all,
       1});
  return norms;
}

}  // namespace copus
