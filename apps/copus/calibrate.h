// copus validate --calibrate: parameters of a cluster and its framework, fitted to measured rows.
#pragma once

#include <span>
#include <string>

#include "copus/base/result.h"
#include "copus/validate/accuracy.h"
#include "copus/validate/calibrate.h"

namespace copus {

struct CalibrateArgs {
  std::string to;    // a cluster file (.json), or a folder as COPUS_CATALOG names one
  std::string keep;  // separated by ";": GPUs, networks or frameworks that stay as they are
  bool from_scratch = false;
  bool json = false;
  std::string notes;  // what is to be said of the rows beside
};

// `profiles`: of each run, as it was priced. Prints what was fitted, with the errors on rows that
// were left out, and writes the result.
Result<int> run_calibration(std::span<const PricedRun> runs,
                            std::span<const FrameworkProfile* const> profiles,
                            const CalibrateArgs& args);

}  // namespace copus
