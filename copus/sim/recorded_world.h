// RecordedWorld: the simulated world that recorded runs show.
#pragma once

#include <vector>

#include "copus/goodput/candidates.h"
#include "copus/sim/fit_curve.h"

namespace copus {

struct RecordedWorld {
  FittedCurve fitted;
  double calibration = 0;           // fitted critical batch / recorded noise scale
  std::int64_t configurations = 0;  // how many have recorded step times
  World world;                      // without pauses
};

// Makes a world from recorded runs. A configuration that ran has its recorded step time; the
// others have the predicted one, corrected by the recorded ones. `candidates` are predictions for
// the same model and machine. `believed`: critical batch / noise scale if the runs do not tell it.
Result<RecordedWorld> recorded_world(const std::vector<RecordedRun>& runs,
                                     const std::vector<Candidate>& candidates, double believed);

}  // namespace copus
