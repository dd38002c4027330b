// Modes of a training run, with the names that options and events use for them.
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

// What a run may change by itself while it trains.
enum class Adapt {
  kOff,
  kBatch,  // batch and micro-batch; the layout stays
  kFull,   // batch, micro-batch and layout
  kTrack,  // the batch follows the critical batch at any cost in speed; the layout stays
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

// What a run does at a bad step, which must not change the weights: it stops, skips the step's
// samples, or goes back to a checkpoint and skips the samples.
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
