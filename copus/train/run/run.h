// A whole training run on one rank: its start, its steps until a reason to stop, its events and
// what it prints.
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
  // Not empty if the loss was not finite or spiked (the same on all ranks), if the run failed (this
  // rank's own reason), or if the last checkpoint was not saved.
  std::string error;
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::optional<double> loss;  // of the last step; empty: there was no step
  std::optional<double> held_out_loss;
  Seconds seconds;
  double tokens_per_s = 0;  // counts only what this process has trained
  std::int64_t moves = 0;
  Seconds pause;        // of all moves
  bool saved = false;   // the last step has a checkpoint, as far as this rank knows
  std::string summary;  // on rank 0: the phases of a run that moved
};

// Runs a training. Every rank calls this with the same options. Only rank 0 uses `progress` and
// writes the run's record. A signal handler may set `stop_asked` on any rank: all ranks then end
// after the same step. Returns an error only for bad input, which is found before the first step.
// Any other failure after the run has entered its directory, including libtorch's exceptions,
// becomes an outcome with an `end` event.
Result<RunOutcome> run_training(GroupCache& groups, const RunOptions& options, Progress* progress,
                                const std::atomic<bool>& stop_asked);

}  // namespace copus
