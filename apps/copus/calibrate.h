// copus validate --calibrate: fits parameters of a cluster and its framework to measured rows.
#pragma once

#include <span>
#include <string>

#include "copus/base/result.h"
#include "copus/validate/accuracy.h"
#include "copus/validate/calibrate.h"

namespace copus {

struct CalibrateArgs {
  std::string to;    // a cluster file (.json), or a folder for COPUS_CATALOG
  std::string keep;  // GPUs, networks or frameworks that are not fitted, separated by ";"
  bool from_scratch = false;
  bool json = false;
  std::string notes;  // notes on the rows, printed with the result
};

// `profiles`: the profile of each run. Prints the fitted values and the errors on rows left out,
// and writes the result.
Result<int> run_calibration(std::span<const PricedRun> runs,
                            std::span<const FrameworkProfile* const> profiles,
                            const CalibrateArgs& args);

}  // namespace copus
