// How a run works, by the names that its options and its events have for it.
#pragma once

#include <array>
#include <string_view>

namespace copus {

// What ranks compute on.
enum class DeviceKind { kCpu, kCuda };
inline constexpr std::array kDeviceKinds = {DeviceKind::kCpu, DeviceKind::kCuda};
constexpr std::string_view to_string(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? "cpu" : "cuda";
}

// What a run changes of itself while it trains.
enum class Adapt {
  kOff,
  kBatch,  // batch and micro-batch; the layout stays
  kFull,
  kTrack,  // the batch is the critical one, whatever that costs; the layout stays
};
inline constexpr std::array kAdapts = {Adapt::kOff, Adapt::kBatch, Adapt::kFull, Adapt::kTrack};
constexpr std::string_view to_string(Adapt adapt) {
  switch (adapt) {
    case Adapt::kOff:
      return "off";
    case Adapt::kBatch:
      return "batch";
    case Adapt::kFull:
      return "full";
    case Adapt::kTrack:
      return "track";
  }
  return "?";
}

// What becomes of a step that must not change the weights: the run stops, leaves the step's samples
// out, or goes back to a checkpoint and leaves them out.
enum class OnBadStep { kStop, kSkip, kRollback };
inline constexpr std::array kOnBadSteps = {OnBadStep::kStop, OnBadStep::kSkip,
                                           OnBadStep::kRollback};
constexpr std::string_view to_string(OnBadStep action) {
  switch (action) {
    case OnBadStep::kStop:
      return "stop";
    case OnBadStep::kSkip:
      return "skip";
    case OnBadStep::kRollback:
      return "rollback";
  }
  return "?";
}

}  // namespace copus
