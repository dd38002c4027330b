// Fits a loss curve and a law of progress to recorded runs.
#pragma once

#include <vector>

#include "copus/sim/recorded_run.h"

namespace copus {

struct FittedCurve {
  LossCurve curve;
  ProgressLaw law;
  double spread = 0;  // relative RMS deviation of the runs' progress to the same loss
};

// Finds the law under which all runs, at any batches, have made the same progress when they have
// the same loss: least squares over the logarithms, by Levenberg and Marquardt. A parameter that
// the runs do not determine stays near its prior. For the critical batch, which a single run does
// not determine, the prior is `calibration` times the recorded noise scale.
// REQUIRES: runs is not empty.
Result<FittedCurve> fit_curve(const std::vector<RecordedRun>& runs, double calibration);

}  // namespace copus
