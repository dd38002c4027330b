// calibrate() where the Ceres solver was not found.
#include "copus/base/check.h"
#include "copus/validate/calibrate.h"

namespace copus {

bool can_calibrate() { return false; }

Calibration calibrate(std::span<const CalibrationRow>, const CalibrationOptions&) {
  COPUS_CHECK(can_calibrate());
  return {};
}

}  // namespace copus
