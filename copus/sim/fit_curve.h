// A loss curve and a law of progress, fitted to recorded runs.
#pragma once

#include <vector>

#include "copus/sim/recorded_run.h"

namespace copus {

struct FittedCurve {
  LossCurve curve;
  ProgressLaw law;
  double error = 0;  // root mean square, relative, of the runs' smoothed losses
};

// Least squares over the logarithm of the losses, by Levenberg and Marquardt. What the runs do not
// tell stays near a prior: of runs that share one batch the critical batch is `calibration` times
// the recorded noise scale. `base_batch`: the one that the learning rate is meant for. REQUIRES: a
// run with steps.
Result<FittedCurve> fit_curve(const std::vector<RecordedRun>& runs, double calibration,
                              double base_batch);

}  // namespace copus
