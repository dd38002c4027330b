// LossCurve: how far a run has come, what its loss is there, and which batch is critical.
//
// Progress is counted in steps of an infinite batch. A step at batch B makes 1/(1 + Bcrit/B) of one
// (McCandlish et al. 2018, arXiv 1812.06162, section 2.3).
#pragma once

#include <cstdint>
#include <vector>

#include "copus/spec/model_spec.h"

namespace copus {

struct LossKnot {
  double progress = 0;
  double loss = 0;
};

struct LossCurve {
  // loss = floor + (scale / progress)^exponent, in nats.
  double floor = 0;
  double scale = 1;
  double exponent = 1;
  double start_loss = 0;  // before the first step
  // Not empty: the curve goes through these instead, straight in the logarithms, and on beyond the
  // last as before it. Progress rises, losses fall; the first loss is start_loss.
  std::vector<LossKnot> knots;
  // critical batch = critical_scale / loss^critical_exponent, in samples.
  double critical_scale = 1;
  double critical_exponent = 0;

  // Progress from the start on. REQUIRES: floor < loss <= start_loss.
  double progress_at(double loss) const;
  double loss_at(double progress) const;
  double critical_batch(double loss) const;
};

// What one step at a batch adds to a run's progress.
struct ProgressLaw {
  // 0: the critical-batch law, which takes the learning rate to be the best for each batch. 0.5:
  // that times the square root of batch / base_batch, as COPUS's LR-aware Goodput has it: the rate
  // is one that was right at the base batch, scaled by the square-root rule, and a run gains from
  // every larger one.
  double lr_exponent = 0;
  double base_batch = 1;
  // How sudden the change is from steps that gain with their batch to steps that do not: 1/(1 +
  // (Bcrit/B)^k)^(1/k). 1 in the law as published; live runs may show more.
  double sharpness = 1;

  double step(double batch, double critical_batch) const;
};

// Kaplan et al. 2020 (arXiv 2001.08361), tables 2 and 3 and equation 1.4: loss by parameters
// (without the embeddings) and steps, the critical batch by loss. A run begins where every token is
// as likely as any other.
LossCurve kaplan_curve(const ModelSpec& model, std::int64_t seq_len);

}  // namespace copus
