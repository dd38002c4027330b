// When a run stops: its limits against what it has reached, and how long it has until then. Pure:
// no clock, no messages.
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
  double loss = INFINITY;  // that --until-loss is held against
};

// The limit that is reached: the loss before the steps, the steps before the samples. Nothing: none
// is.
std::optional<EndReason> reached_limit(const RunOptions& options, const Reached& reached);

// Whether a rank was asked to stop during the step, and by what.
enum class Asked { kNo, kByItsTime, kBySignal };

// Why the run stops after this step; nothing: it goes on. `given_up`: an evaluation was, for a rank
// was asked to stop.
std::optional<EndReason> reason_to_stop(const RunOptions& options, const Reached& reached,
                                        Asked asked, bool given_up);

struct Pace {
  Seconds step;  // of late
  std::int64_t global_batch = 1;
  Seconds elapsed;
  bool out_of_time = false;  // whoever goes on has another --for
};
// Until whichever limit comes first; nothing where none says.
std::optional<Seconds> time_left(const RunOptions& options, const Reached& reached,
                                 const Pace& pace);

}  // namespace copus
