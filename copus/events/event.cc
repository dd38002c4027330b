#include "copus/events/event.h"

namespace copus {

std::string_view to_string(EndReason reason) {
  switch (reason) {
    case EndReason::kSteps:
      return "steps";
    case EndReason::kSamples:
      return "samples";
    case EndReason::kLoss:
      return "loss";
    case EndReason::kTime:
      return "time";
    case EndReason::kSignal:
      return "signal";
    case EndReason::kNotFinite:
      return "not_finite";
    case EndReason::kSpike:
      return "spike";
    case EndReason::kFailed:
      return "failed";
  }
  return "?";
}

std::string_view to_string(DecisionAction action) {
  switch (action) {
    case DecisionAction::kKeep:
      return "keep";
    case DecisionAction::kSwitch:
      return "switch";
    case DecisionAction::kLater:
      return "later";
  }
  return "?";
}

}  // namespace copus
