// The policy: whether to move a run, and where to. A pure function: no clock, no I/O, no state; the
// same situation gives the same decision.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/base/units.h"
#include "copus/goodput/configuration.h"
#include "copus/goodput/efficiency.h"
#include "copus/goodput/noise_scale.h"
#include "copus/spec/run_modes.h"

namespace copus {

struct PolicyOptions {
  Adapt adapt = Adapt::kFull;
  GoodputKind kind = GoodputKind::kLrAware;
  double margin = 0.10;        // Goodput a change of layout has to gain
  double batch_margin = 0.05;  // and a change that moves no state (batch, micro-batch)
  double calibration = 2.0;    // critical batch / noise scale
  double growth = 2.0;         // the batch changes by at most this factor at once, both ways
  // Steps in one configuration before it is left; twice as many to undo the move that led there (as
  // a whole, or its layout, or the direction of its batch).
  std::int64_t dwell_steps = 20;
  // How sure a gain must be: above so many standard deviations of the ratio of the step times; and
  // not lost where the noise scale is so many standard deviations off, either way (four times as
  // many to undo a move).
  double caution = 0.5;
  double noise_caution = 1.0;
  // Time until the end of the run that is counted on where nothing says when it ends.
  Seconds horizon{3600};
};

// One place to be.
struct Choice {
  Configuration at;
  Seconds step_time;
  // Of step_time over the current configuration's: what is uncertain in both alike does not count.
  double relative_sd = 0;
  Seconds pause;  // to get there from the current one
};

struct Situation {
  Choice now;
  std::vector<Choice> choices;  // others; `now` among them does no harm
  std::optional<NoiseEstimate> noise;
  std::int64_t steps_here = 0;             // since the last move, or the start
  std::optional<Configuration> came_from;  // before the last move
  std::optional<Seconds> remaining;        // of the run, at the current speed
};

struct Decision {
  bool move = false;
  Configuration to;    // the best choice; where it is not moved to, `why` says what is missing
  double gain = 0;     // its Goodput over the current one's, less 1
  double goodput = 0;  // of the current one; 0 while the noise scale is not known
  double critical_batch = 0;
  std::int64_t candidates = 0;  // choices that were allowed
  std::string reason;  // for `to`, which it does not name; empty: nothing speaks for a move
  std::string why;     // one line for a person: `to` and the reason, or why the run stays

  // Sets both texts. REQUIRES: `to` is set.
  void give_reason(std::string text);
};

// The choice of most Goodput among those that clear every bar: margin, certainty, pause, dwell.
Decision decide(const PolicyOptions& options, const Situation& situation);

}  // namespace copus
