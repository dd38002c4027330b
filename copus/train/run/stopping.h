// Decides when a run stops: compares its limits with what it has reached, and estimates the time
// that is left. Pure functions: no clock, no messages.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "copus/events/event.h"
#include "copus/train/options/run_options.h"

namespace copus {

struct Reached {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  double loss = INFINITY;  // the loss that is compared with --until-loss
};

// Returns the limit that is reached, or nothing. If several are, the loss comes before the steps,
// and the steps before the samples.
std::optional<EndReason> reached_limit(const RunOptions& options, const Reached& reached);

// Whether a rank was asked to stop during the step, by its time limit (--for) or by a signal.
enum class Asked { kNo, kByItsTime, kBySignal };

// Returns why the run stops after this step, or nothing if it continues. `given_up`: an evaluation
// was given up because a rank was asked to stop.
std::optional<EndReason> reason_to_stop(const RunOptions& options, const Reached& reached,
                                        Asked asked, bool given_up);

struct Pace {
  Seconds step;  // the recent time of a step
  std::int64_t global_batch = 1;
  Seconds elapsed;
  bool out_of_time = false;  // --for is over; it does not bind the run that resumes this one
};
// Returns the time until the first limit is reached, or nothing if no limit gives a time.
std::optional<Seconds> time_left(const RunOptions& options, const Reached& reached,
                                 const Pace& pace);

}  // namespace copus
