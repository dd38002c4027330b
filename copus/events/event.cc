#include "copus/events/event.h"

#include <array>

#include "copus/base/text.h"

namespace copus {
namespace {

constexpr std::array kEndReasons = {EndReason::kSteps, EndReason::kSamples, EndReason::kLoss,
                                    EndReason::kTime,  EndReason::kSignal,  EndReason::kNotFinite,
                                    EndReason::kSpike, EndReason::kFailed};
constexpr std::array kActions = {DecisionAction::kKeep, DecisionAction::kSwitch,
                                 DecisionAction::kLater};

template <typename Enum, std::size_t n>
Result<Enum> parse_one_of(std::string_view field, std::string_view text,
                          const std::array<Enum, n>& values) {
  std::vector<std::string> names;
  for (const Enum value : values) {
    if (text == to_string(value)) return value;
    names.emplace_back(to_string(value));
  }
  return field_error(field, "got {:?}; want {}", text.substr(0, 40), join_or(names));
}

}  // namespace

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

Result<EndReason> parse_end_reason(std::string_view text) {
  return parse_one_of("reason", text, kEndReasons);
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

Result<DecisionAction> parse_decision_action(std::string_view text) {
  return parse_one_of("action", text, kActions);
}

}  // namespace copus
