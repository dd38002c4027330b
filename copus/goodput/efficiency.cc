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

Result<GoodputKind> parse_goodput_kind(std::string_view text) {
  std::vector<std::string> names;
  for (const GoodputKind kind : {GoodputKind::kPlain, GoodputKind::kLrAware}) {
    if (text == to_string(kind)) return kind;
    names.emplace_back(to_string(kind));
  }
  return make_error("--goodput: got {}; want {}", text.substr(0, 40), join_or(names));
}

double goodput(GoodputKind kind, double samples_per_s, double batch, double critical_batch) {
  const double plain = samples_per_s * statistical_efficiency(batch, critical_batch);
  return kind == GoodputKind::kLrAware ? plain * std::sqrt(batch) : plain;
}

double learning_rate_factor(double batch, double base_batch) {
  return std::sqrt(batch / base_batch);
}

}  // namespace copus
