#include "copus/train/health/bad_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "copus/base/median.h"
#include "copus/base/text.h"

namespace copus {
namespace {

// The standard deviation of a normal distribution is this many median absolute deviations.
constexpr double kNormal = 1.4826;
// A deviation is at least this share of the median. Recent losses may be almost equal (if the model
// has learned its data by heart), and then rounding would count as a spike.
constexpr double kLeastDeviation = 1e-3;

}  // namespace

std::string BadSteps::judge(double loss, double grad_norm) {
  // Prints NaN without its sign, which means nothing.
  const auto plain = [](double x) { return std::isnan(x) ? NAN : x; };
  if (!std::isfinite(loss)) return fmt::format("the loss is {}", plain(loss));
  if (!std::isfinite(grad_norm)) return fmt::format("the gradient norm is {}", plain(grad_norm));
  const bool known = losses_.size() >= kEnough;
  if (options_.loss_spike > 0 && known) {
    const std::vector<double> late(losses_.begin(), losses_.end());
    const double middle = median(late);
    std::vector<double> distances(late.size());
    std::transform(late.begin(), late.end(), distances.begin(),
                   [&](double x) { return std::abs(x - middle); });
    const double deviation =
        std::max(kNormal * median(std::move(distances)), kLeastDeviation * std::abs(middle));
    if (loss > middle + options_.loss_spike * deviation) {
      return fmt::format("the loss is {:.1f} deviations above {:.4f}, its median of {} steps",
                         (loss - middle) / deviation, middle, late.size());
    }
  }
  if (options_.norm_spike > 0 && known) {
    const double middle = median({norms_.begin(), norms_.end()});
    if (grad_norm > options_.norm_spike * middle) {
      return fmt::format("the gradient norm is {:.1f} times {:.4g}, its median of {} steps",
                         grad_norm / middle, middle, norms_.size());
    }
  }
  in_a_row_ = 0;
  if (options_.loss_spike <= 0 && options_.norm_spike <= 0) return "";
  losses_.push_back(loss);
  norms_.push_back(grad_norm);
  if (losses_.size() > kWindow) {
    losses_.pop_front();
    norms_.pop_front();
  }
  return "";
}

Result<OnBadStep> BadSteps::act(const std::string& why) {
  if (options_.action == OnBadStep::kSkip && ++in_a_row_ > options_.most_in_a_row) {
    return make_error("{}; {} bad steps in a row; --max-bad-steps is {}", why, in_a_row_,
                      options_.most_in_a_row);
  }
  if (options_.action == OnBadStep::kRollback && ++rollbacks_ > options_.most_rollbacks) {
    return make_error("{}; rolled back {} already, and --max-rollbacks allows no more", why,
                      counted(options_.most_rollbacks, "time"));
  }
  return options_.action;
}

}  // namespace copus
