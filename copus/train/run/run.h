// A whole training run on one rank: steps until a reason to stop, events, what a person sees.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "copus/base/units.h"
#include "copus/events/event.h"
#include "copus/train/comm/mesh.h"
#include "copus/train/options/run_options.h"
#include "copus/train/record/progress.h"

namespace copus {

struct RunOutcome {
  EndReason reason = EndReason::kFailed;
  // Not empty: not finite or a spike (all ranks agree), failed (this rank's own reason), or the
  // last checkpoint was not saved.
  std::string error;
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::optional<double> loss;  // of the last step; nothing: none was made
  std::optional<double> held_out_loss;
  Seconds seconds;
  double tokens_per_s = 0;  // of what this process trained
  std::int64_t moves = 0;
  Seconds pause;        // of all moves
  bool saved = false;   // what was reached is a checkpoint, as far as this rank knows
  std::string summary;  // rank 0's: the phases of a run that moved
};

// Every rank calls this with the same options. `progress` and the run directory are rank 0's alone.
// `stop_asked` may be set by a signal handler on any rank: all ranks then end after the same step.
// An error is one of the input, found before the first step. Whatever else goes wrong once the run
// has entered its directory, libtorch's exceptions with it, is an outcome with its `end` event.
Result<RunOutcome> run_training(GroupCache& groups, const RunOptions& options, Progress* progress,
                                const std::atomic<bool>& stop_asked);

}  // namespace copus
