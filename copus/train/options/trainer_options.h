// What a training run computes: the layout's options, the optimizer's and the learning rate's.
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

// Warm-up, then a cosine to a floor; all in samples, so that a change of batch leaves it in place.
struct LrSchedule {
  double peak = 3e-4;
  double floor = 3e-5;
  std::int64_t warmup_samples = 0;
  std::int64_t decay_samples = 0;  // where the floor is reached; 0: no decay
};

struct TrainerOptions : LayoutOptions {
  AdamOptions adam;
  LrSchedule lr;
  // The batch that the learning rate is meant for: at another it is scaled by the square root of
  // their ratio. 0: whatever the batch is.
  std::int64_t base_batch = 0;
  double clip_norm = 1.0;  // 0: no clipping
  // Norms for the noise scale are taken every so many steps; 0: so often that they cost less than
  // 1% of the steps (noise_interval()).
  std::int64_t noise_every = 0;
};

// What this engine cannot train, though it can be planned: the error names the field.
Result<void> check_trainable(const TrainerOptions& options);

}  // namespace copus
