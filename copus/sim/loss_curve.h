// LossCurve: the loss of a run at each point of its progress, and the critical batch at each loss.
//
// Progress is counted in steps of an infinite batch. A step at batch B makes a progress of
// 1/(1 + Bcrit/B) (McCandlish et al. 2018, arXiv 1812.06162, section 2.3).
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
  // If not empty, these replace the formula: the curve goes through them, straight in the
  // logarithms, and extends the last piece beyond the last knot. Progress rises, losses fall; the
  // first loss is start_loss.
  std::vector<LossKnot> knots;
  // critical batch = critical_scale / loss^critical_exponent, in samples.
  double critical_scale = 1;
  double critical_exponent = 0;

  // Returns the progress from the start to `loss`. REQUIRES: floor < loss <= start_loss.
  double progress_at(double loss) const;
  double loss_at(double progress) const;
  double critical_batch(double loss) const;
};

// The progress that one step at a batch makes.
struct ProgressLaw {
  // 0: the critical-batch law, which assumes the best learning rate for each batch. 0.5: the
  // critical-batch law times the square root of batch / base_batch, as in COPUS's LR-aware Goodput.
  // It assumes a learning rate that is right at the base batch and follows the square-root rule,
  // and a run that gains from every higher rate.
  double lr_exponent = 0;
  double base_batch = 1;
  // The k of 1/(1 + (Bcrit/B)^k)^(1/k): how sharply the gain from a larger batch ends at the
  // critical batch. The published law has 1; live runs may show other values.
  double sharpness = 1;

  double step(double batch, double critical_batch) const;
};

// Returns the curve of Kaplan et al. 2020 (arXiv 2001.08361), tables 2 and 3 and equation 1.4: loss
// by parameters (without the embeddings) and steps, critical batch by loss. The start loss is that
// of a model to which all tokens are equally likely.
LossCurve kaplan_curve(const ModelSpec& model, std::int64_t seq_len);

}  // namespace copus
