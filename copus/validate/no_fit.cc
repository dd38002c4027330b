// Stands in for fit_ceres.cc in programs without the Ceres solver: in builds without Ceres, and in
// the training engine, which must not link it.
#include "copus/base/check.h"
#include "copus/validate/calibrate.h"

namespace copus {

bool can_calibrate() { return false; }

Calibration calibrate(std::span<const CalibrationRow>, const CalibrationOptions&) {
  COPUS_CHECK(can_calibrate());
  return {};
}

}  // namespace copus
