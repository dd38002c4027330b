// A loss curve and a law of progress, fitted to recorded runs.
#pragma once

#include <vector>

#include "copus/sim/recorded_run.h"

namespace copus {

struct FittedCurve {
  LossCurve curve;
  ProgressLaw law;
  double spread = 0;  // root mean square, relative, of the runs' progress to the same loss
};

// The law under which all runs have made the same progress when they have the same loss, whatever
// their batches: least squares over the logarithms, by Levenberg and Marquardt. What the runs do
// not tell stays near a prior: the critical batch is `calibration` times the recorded noise scale,
// as one run alone cannot tell. REQUIRES: runs.
Result<FittedCurve> fit_curve(const std::vector<RecordedRun>& runs, double calibration);

}  // namespace copus
