// AdamW with decoupled weight decay (Loshchilov & Hutter 2019), on flat FP32 tensors; the
// learning-rate schedule; sums of squares.
#pragma once

#include <cstdint>

#include "copus/train/device/torch_api.h"
#include "copus/train/options/trainer_options.h"

namespace copus {

// Makes one update in place. `step` counts from 1. The gradients are multiplied by `gradient_scale`
// (for clipping). `rounded` receives the values in its own precision; it may be `values` itself.
void adamw_update(const AdamOptions& options, double lr, double weight_decay, std::int64_t step,
                  double gradient_scale, const Tensor& values, const Tensor& gradients,
                  const Tensor& moment1, const Tensor& moment2, const Tensor& rounded);

// Adds the sum of the squares of `x`, a flat FP32 tensor, to `total`, a double without dimensions.
void add_sum_of_squares(const Tensor& x, const Tensor& total);

// Returns the learning rate after so many samples.
double learning_rate(const LrSchedule& schedule, std::int64_t samples);

}  // namespace copus
