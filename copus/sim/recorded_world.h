// The world as recorded runs show it: what a simulation is set in that continues them.
#pragma once

#include <vector>

#include "copus/goodput/candidates.h"
#include "copus/sim/fit_curve.h"

namespace copus {

struct RecordedWorld {
  FittedCurve fitted;
  double calibration = 0;           // critical batch as fitted / noise scale as recorded
  std::int64_t configurations = 0;  // whose step times were recorded
  World world;                      // without pauses
};

// Step times: those of configurations that were recorded; of others what the model predicts,
// corrected by them. `candidates` are predictions for the same model and machine. `believed`: what
// the critical batch is over the noise scale where the runs cannot tell.
Result<RecordedWorld> recorded_world(const std::vector<RecordedRun>& runs,
                                     const std::vector<Candidate>& candidates, double believed);

}  // namespace copus
