// What it is worth to try a layout whose step time is uncertain, or a batch whose progress is, and
// what the try costs.
#pragma once

#include <cstdint>
#include <vector>

#include "copus/goodput/efficiency.h"
#include "copus/goodput/step_times.h"

namespace copus {

// `x` is the time of a step there over that of a step at the reference. ln x is normal, or a
// mixture of normal distributions. The tails matter: a layout that is believed to be slower is
// tried because of them.
struct TryWorth {
  double saving = 0;    // E[max(0, 1 - x)]: the share of the time that is saved if the run stays
                        // there where it is faster, and else comes back
  double slowdown = 0;  // E[max(0, x - 1)]: how much longer the steps of the try take
  double fails = 0;     // P(x > 1): the run comes back
};
TryWorth worth_of_try(const StepTimeRatio& x);
TryWorth worth_of_try(const std::vector<WeightedRatio>& x);

// What it is worth to try another batch. `speed`: the samples per second there over those here.
struct BatchTryWorth {
  TryWorth worth;     // of the time that the same progress takes
  double log_sd = 0;  // of ln(progress per sample there / here): what a try can show
};
BatchTryWorth worth_of_batch_try(const std::vector<WeightedLaw>& laws, double gns,
                                 std::int64_t here, std::int64_t there, double speed);

}  // namespace copus
