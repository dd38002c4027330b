// calibrate() where there is no Ceres solver, or where it may not be: in the training engine.
#include "copus/base/check.h"
#include "copus/validate/calibrate.h"

namespace copus {

bool can_calibrate() { return false; }

Calibration calibrate(std::span<const CalibrationRow>, const CalibrationOptions&) {
  COPUS_CHECK(can_calibrate());
  return {};
}

}  // namespace copus
