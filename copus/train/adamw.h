// AdamW with decoupled weight decay (Loshchilov & Hutter 2019), on flat FP32 tensors; the
// learning-rate schedule; sums of squares.
#pragma once

#include <cstdint>

#include "copus/train/torch_api.h"

namespace copus {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

// One update, in place. `step` counts from 1. `gradient_scale` multiplies the gradients (clipping).
void adamw_update(const AdamOptions& options, double lr, double weight_decay, std::int64_t step,
                  double gradient_scale, const Tensor& values, const Tensor& gradients,
                  const Tensor& moment1, const Tensor& moment2);

// In double precision, as a tensor of no dimensions on x's device.
Tensor sum_of_squares(const Tensor& x);

// Warm-up, then a cosine to a floor; all in samples, so that a change of batch leaves it in place.
struct LrSchedule {
  double peak = 3e-4;
  double floor = 3e-5;
  std::int64_t warmup_samples = 0;
  std::int64_t decay_samples = 0;  // where the floor is reached; 0: no decay
};
double learning_rate(const LrSchedule& schedule, std::int64_t samples);

}  // namespace copus
