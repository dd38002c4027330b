// The policy: decides whether a run moves, and to which configuration. It is a pure function
// without clock, I/O or state: the same situation always gives the same decision.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
  double margin = 0.05;        // a change of layout has to gain this share of Goodput
  double batch_margin = 0.05;  // a change of batch or micro-batch has to gain this share
  double calibration = 2.0;    // critical batch / noise scale
  double growth = 2.0;         // the batch changes at most by this factor at once, up or down
  // Steps in a configuration before the run may leave it. Twice as many before it may undo its last
  // move: the whole move, its change of layout, or the direction of its change of batch.
  std::int64_t dwell_steps = 20;
  // How certain a gain must be. ln(1 + gain) must exceed `caution` standard deviations of the
  // logarithm of the ratio of the step times. It must not vanish if the noise scale is off by
  // `noise_caution` standard deviations to either side (four times as many to undo a move).
  double caution = 0.25;
  double noise_caution = 1.0;
  // The time that the policy assumes to be left if the end of the run is not known.
  Seconds horizon{3600};
};

// Which rules decide.
enum class Rules {
  kCopus,      // those of this program
  kCopus2026,  // those that the COPUS paper states: see published()
};
inline constexpr std::array kRules = {Rules::kCopus, Rules::kCopus2026};
std::string_view to_string(Rules rules);

// The options with what the COPUS paper states: a critical batch of twice the noise scale, lr-aware
// Goodput, a margin of 10% for every move. The bars on certainty, which it does not have, are off.
// What it does not say stays: dwell, growth, and that a pause must pay.
PolicyOptions published(PolicyOptions options);

// A configuration that a run may choose.
struct Choice {
  Configuration at;
  Seconds step_time;
  // Standard deviation of ln(step_time / step_time of the current configuration). Uncertainty that
  // both share cancels.
  double log_sd = 0;
  Seconds pause;  // of the move from the current configuration
};

struct Situation {
  Choice now;
  std::vector<Choice> choices;  // may include `now`, which is ignored
  std::optional<NoiseEstimate> noise;
  // What is believed of the progress at each batch; empty: options.kind and calibration hold.
  std::vector<WeightedLaw> laws;
  std::int64_t steps_here = 0;             // since the last move, or the start
  std::optional<Configuration> came_from;  // before the last move
  std::optional<Seconds> remaining;        // of the run, at the current speed
};

struct Decision {
  bool move = false;
  Configuration to;    // the best choice; if the run does not move, `why` says which bar it misses
  double gain = 0;     // its Goodput over the current one's, less 1
  double goodput = 0;  // of the current configuration; 0 while the noise scale is not known
  double critical_batch = 0;
  std::int64_t candidates = 0;  // choices that were allowed
  std::string reason;  // what speaks for `to` or against it, without its name; may be empty
  std::string why;     // one line for people: `to` and the reason, or why the run stays

  // Sets both texts. REQUIRES: `to` is set.
  void give_reason(std::string text);
};

// Whether the batch may change by this factor at once.
bool growth_allowed(const PolicyOptions& options, double ratio);

// Picks the choice with the highest Goodput among those that clear every bar: margin, certainty,
// pause, dwell.
Decision decide(const PolicyOptions& options, const Situation& situation);

}  // namespace copus
