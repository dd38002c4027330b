#include "copus/train/engine/adamw.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "copus/train/model/cpu/vector.h"
#include "copus/train/model/cuda/ops.h"

namespace copus {
namespace {

constexpr std::int64_t kGrain = 1 << 14;

// Updates in one pass over memory; ATen would need one pass per operator.
COPUS_EVERY_X86 void update_on_cpu(std::int64_t count, float beta1, float beta2, float eps,
                                   float keep, float lr, float root_correction2, float scale,
                                   float* __restrict value, const float* __restrict gradient,
                                   float* __restrict m, float* __restrict v) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * scale;
    m[i] += (1 - beta1) * (g - m[i]);
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    value[i] = value[i] * keep - lr * m[i] / (std::sqrt(v[i]) / root_correction2 + eps);
  }
}

// Adds to several sums in turn, so that one addition need not wait for the one before.
COPUS_EVERY_X86 double sum_of_squares_on_cpu(std::int64_t count, const float* data) {
  constexpr int kSums = 32;
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int k = 0; k < kSums; ++k) sums[k] += static_cast<double>(data[i + k]) * data[i + k];
  }
  double total = 0;
  for (; i < count; ++i) total += static_cast<double>(data[i]) * data[i];
  for (const double sum : sums) total += sum;
  return total;
}

// The same update by ATen, for a GPU on which Copus's kernels are not used.
void update_by_aten(const AdamOptions& options, const cuda::AdamRates& rates,
                    [[maybe_unused]] double lr, [[maybe_unused]] double weight_decay,
                    [[maybe_unused]] std::int64_t step, const Tensor& values,
                    const Tensor& gradients, const Tensor& moment1, const Tensor& moment2) {
  const at::NoGradGuard no_grad;
#if TORCH_VERSION_MAJOR >= 2
  // This is one kernel. It divides the gradients by its last argument and writes the quotients
  // back, which is harmless: nothing reads the gradients after the update.
  const at::TensorOptions scalar = values.options();
  at::_fused_adamw_({values}, {gradients}, {moment1}, {moment2}, {},
                    {at::full({}, static_cast<double>(step), scalar)}, lr, options.beta1,
                    options.beta2, weight_decay, options.eps, /*amsgrad=*/false,
                    /*maximize=*/false, at::full({}, 1 / rates.gradient_scale, scalar));
#else
  const Tensor g = rates.gradient_scale == 1 ? gradients : gradients * rates.gradient_scale;
  moment1.lerp_(g, 1 - options.beta1);
  moment2.mul_(options.beta2).addcmul_(g, g, 1 - options.beta2);
  const Tensor denominator = moment2.sqrt().div_(rates.root_correction2).add_(options.eps);
  values.mul_(rates.keep).addcdiv_(moment1, denominator, -rates.lr);
#endif
}

}  // namespace

void adamw_update(const AdamOptions& options, double lr, double weight_decay, std::int64_t step,
                  double gradient_scale, const Tensor& values, const Tensor& gradients,
                  const Tensor& moment1, const Tensor& moment2, const Tensor& rounded) {
  const bool rounds = rounded.scalar_type() != at::kFloat;
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(step));
  const cuda::AdamRates rates{
      .beta1 = options.beta1,
      .beta2 = options.beta2,
      .eps = options.eps,
      .keep = 1 - lr * weight_decay,
      .lr = lr / correction1,
      .root_correction2 = std::sqrt(1 - std::pow(options.beta2, static_cast<double>(step))),
      .gradient_scale = gradient_scale};
  if (cuda::takes(values)) {
    cuda::adamw(rates, values, gradients, moment1, moment2, rounds ? rounded : Tensor());
    return;
  }
  if (values.is_cpu()) {
    float* value = values.data_ptr<float>();
    const float* gradient = gradients.data_ptr<float>();
    float* m = moment1.data_ptr<float>();
    float* v = moment2.data_ptr<float>();
    at::parallel_for(0, values.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      update_on_cpu(end - begin, static_cast<float>(rates.beta1), static_cast<float>(rates.beta2),
                    static_cast<float>(rates.eps), static_cast<float>(rates.keep),
                    static_cast<float>(rates.lr), static_cast<float>(rates.root_correction2),
                    static_cast<float>(rates.gradient_scale), value + begin, gradient + begin,
                    m + begin, v + begin);
    });
  } else {
    update_by_aten(options, rates, lr, weight_decay, step, values, gradients, moment1, moment2);
  }
  if (rounds) rounded.copy_(values);
}

void add_sum_of_squares(const Tensor& x, const Tensor& total) {
  if (cuda::takes(x)) {
    cuda::add_squares(x, total);
  } else if (x.is_cpu()) {
    total.add_(sum_of_squares_on_cpu(x.numel(), x.data_ptr<float>()));
  } else {
    total.add_(at::linalg_vector_norm(x, 2, {}, false, at::kDouble).square());
  }
}

double learning_rate(const LrSchedule& schedule, std::int64_t samples) {
  const double at = static_cast<double>(samples);
  const double warmup = static_cast<double>(schedule.warmup_samples);
  const bool is_over = schedule.decay_samples > 0 && samples >= schedule.decay_samples;
  if (at < warmup) {
    const double rising = schedule.peak * at / warmup;
    return is_over ? std::min(rising, schedule.floor) : rising;
  }
  if (is_over) return schedule.floor;
  if (schedule.decay_samples == 0) return schedule.peak;
  const double done = (at - warmup) / (static_cast<double>(schedule.decay_samples) - warmup);
  return schedule.floor +
         (schedule.peak - schedule.floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace copus
