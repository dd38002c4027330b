#include "copus/goodput/efficiency.h"

#include <cmath>
#include <string>
#include <vector>

#include "copus/base/text.h"

namespace copus {

double statistical_efficiency(double batch, double critical_batch) {
  return 1 / (1 + batch / critical_batch);
}

std::string_view to_string(GoodputKind kind) {
  switch (kind) {
    case GoodputKind::kPlain:
      return "plain";
    case GoodputKind::kLrAware:
      return "lr-aware";
  }
  return "";
}

double BatchLaw::progress_per_sample(double batch, double gns) const {
  const double ratio = batch / (calibration * gns);
  const double efficiency =
      sharpness == 1 ? 1 / (1 + ratio) : std::pow(1 + std::pow(ratio, sharpness), -1 / sharpness);
  return kind == GoodputKind::kLrAware ? efficiency * std::sqrt(batch) : efficiency;
}

double goodput(GoodputKind kind, double samples_per_s, double batch, double critical_batch) {
  const double plain = samples_per_s * statistical_efficiency(batch, critical_batch);
  return kind == GoodputKind::kLrAware ? plain * std::sqrt(batch) : plain;
}

double learning_rate_factor(double batch, double base_batch) {
  return std::sqrt(batch / base_batch);
}

}  // namespace copus
