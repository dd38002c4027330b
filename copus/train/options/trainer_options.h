// The options that determine what a training run computes: those of the layout, of the optimizer
// and of the learning rate.
#pragma once

#include "copus/base/result.h"
#include "copus/train/options/layout_options.h"

namespace copus {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

// The learning rate: a linear warm-up, then a cosine down to a floor. Its position counts samples,
// so that a change of batch does not shift it.
struct LrSchedule {
  double peak = 3e-4;
  double floor = 3e-5;
  std::int64_t warmup_samples = 0;
  std::int64_t decay_samples = 0;  // the rate reaches the floor after these; 0: no decay
};

struct TrainerOptions : LayoutOptions {
  AdamOptions adam;
  LrSchedule lr;
  // The batch for which the learning rate is meant. At another batch the rate is scaled by the
  // square root of their ratio. 0: the rate is the same at every batch.
  std::int64_t base_batch = 0;
  double clip_norm = 1.0;  // 0: no clipping
  // The norms for the noise scale are taken every `noise_every` steps. 0: noise_interval() chooses
  // the steps so that the norms cost less than 1% of the run's time.
  std::int64_t noise_every = 0;
};

// Returns an error that names the field if this engine cannot train the model with this plan,
// although Copus can plan it.
Result<void> check_trainable(const TrainerOptions& options);

}  // namespace copus
