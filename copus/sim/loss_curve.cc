#include "copus/sim/loss_curve.h"

#include <algorithm>
#include <cmath>

#include "copus/base/check.h"

namespace copus {
namespace {

double steps_to(const LossCurve& curve, double loss) {
  return curve.scale * std::pow(loss - curve.floor, -1 / curve.exponent);
}

// Returns the index of the knot that ends the piece of a value. `before` says whether a knot lies
// before the value.
template <typename Before>
std::size_t piece(const std::vector<LossKnot>& knots, const Before& before) {
  std::size_t end = 1;
  while (end + 1 < knots.size() && before(knots[end])) ++end;
  return end;
}

double on_line(double x, double x0, double x1, double y0, double y1) {
  return std::exp(std::log(y0) + (std::log(y1) - std::log(y0)) * (std::log(x) - std::log(x0)) /
                                     (std::log(x1) - std::log(x0)));
}

}  // namespace

double LossCurve::progress_at(double loss) const {
  COPUS_CHECK(loss > floor && loss <= start_loss);
  if (!knots.empty()) {
    const std::size_t end = piece(knots, [&](const LossKnot& knot) { return knot.loss > loss; });
    const LossKnot &a = knots[end - 1], &b = knots[end];
    return on_line(loss, a.loss, b.loss, a.progress, b.progress);
  }
  return steps_to(*this, loss) - steps_to(*this, start_loss);
}

double LossCurve::loss_at(double progress) const {
  if (!knots.empty()) {
    if (progress <= knots.front().progress) return start_loss;
    const std::size_t end =
        piece(knots, [&](const LossKnot& knot) { return knot.progress < progress; });
    const LossKnot &a = knots[end - 1], &b = knots[end];
    return on_line(progress, a.progress, b.progress, a.loss, b.loss);
  }
  return floor + std::pow(scale / (steps_to(*this, start_loss) + progress), exponent);
}

double LossCurve::critical_batch(double loss) const {
  return critical_scale * std::pow(loss, -critical_exponent);
}

double ProgressLaw::step(double batch, double critical_batch) const {
  const double gain =
      sharpness == 1 ? 1 / (1 + critical_batch / batch)
                     : std::pow(1 + std::pow(critical_batch / batch, sharpness), -1 / sharpness);
  return lr_exponent == 0 ? gain : gain * std::pow(batch / base_batch, lr_exponent);
}

LossCurve kaplan_curve(const ModelSpec& model, std::int64_t seq_len) {
  constexpr double kParameters = 8.8e13, kParameterExponent = 0.076;
  constexpr double kSteps = 2.1e3, kStepExponent = 0.76;
  constexpr double kBatchTokens = 2e8, kBatchExponent = 0.21;
  // The law is for dense models. Of a mixture of experts, the parameters that a token passes
  // through count.
  const auto parameters = static_cast<double>(std::max<std::int64_t>(
      1, model.active_params() - model.embedding_params() - model.head_params()));
  LossCurve curve;
  curve.floor = std::pow(kParameters / parameters, kParameterExponent);
  curve.scale = kSteps;
  curve.exponent = kStepExponent;
  // The floor of a tiny model can be above log(vocab). Its start loss is then one nat above the
  // floor.
  curve.start_loss = std::max(std::log(static_cast<double>(model.vocab)), curve.floor + 1);
  curve.critical_scale = kBatchTokens / static_cast<double>(seq_len);
  curve.critical_exponent = 1 / kBatchExponent;
  return curve;
}

}  // namespace copus
