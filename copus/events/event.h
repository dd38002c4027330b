// The events of a run, one struct per kind. event_json.h prints and parses them; no other code
// knows their keys.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "copus/base/units.h"
#include "copus/spec/cluster_spec.h"
#include "copus/spec/parallel_plan.h"
#include "copus/spec/run_modes.h"

namespace copus {

// Why a run, or one process's part of it, ended.
enum class EndReason {
  kSteps,
  kSamples,
  kLoss,
  kTime,
  kSignal,
  kNotFinite,  // a loss or a gradient is not finite
  kSpike,
  kFailed,
};
inline constexpr std::array kEndReasons = {
    EndReason::kSteps,  EndReason::kSamples,   EndReason::kLoss,  EndReason::kTime,
    EndReason::kSignal, EndReason::kNotFinite, EndReason::kSpike, EndReason::kFailed};
std::string_view to_string(EndReason reason);

// The mean of `count` squared norms of gradients, each averaged over `batch` samples.
struct NormEntry {
  double batch = 0;
  double value = 0;
  double count = 1;
  friend bool operator==(const NormEntry&, const NormEntry&) = default;
};

// A run began.
struct StartEvent {
  std::string model;
  std::int64_t parameters = 0;
  ParallelPlan plan;
  std::int64_t ranks = 0;
  DeviceKind device = DeviceKind::kCpu;
  Precision precision = Precision::kFp32;
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;
  std::int64_t data_tokens = 0;
  std::optional<FlopsPerSec> peak;  // of all ranks together
  Adapt adapt = Adapt::kOff;
  std::optional<ClusterSpec> cluster;
  friend bool operator==(const StartEvent&, const StartEvent&) = default;
};

// An option that a resumed run changes, spelled as in config.toml.
struct OptionChange {
  std::string name;
  std::string from;  // empty: it was not in the file
  std::string to;    // empty: it is no longer in the file
  friend bool operator==(const OptionChange&, const OptionChange&) = default;
};

// A run continued in another process.
struct RestartEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::string from;  // the checkpoint; empty: there was none yet
  ParallelPlan plan;
  std::int64_t global_batch = 0;
  std::int64_t ranks = 0;
  std::string why;
  std::string skipped;  // newer checkpoints that could not be used, and why; empty: none
  std::vector<OptionChange> options;  // changed with this start
  friend bool operator==(const RestartEvent&, const RestartEvent&) = default;
};

struct StepEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;  // consumed so far, this step included
  std::int64_t tokens = 0;   // consumed so far, this step included
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  std::int64_t global_batch = 0;
  ParallelPlan plan;
  Seconds step_time;
  double tokens_per_s = 0;
  std::optional<double> mfu;  // 0 to 1
  // The smoothed gradient noise scale and its 95% interval; nullopt: not known.
  std::optional<double> gns, gns_low, gns_high;
  std::optional<double> g2, s;       // this step's own terms; nullopt: it measured no norms
  std::optional<double> gns_scales;  // from the norms' weights alone
  std::vector<NormEntry> norms;      // empty: not measured in this step
  std::vector<NormEntry> scale_norms;
  std::optional<double> critical_batch;
  std::optional<double> goodput;
  std::uint64_t data_hash = 0;  // of all samples so far
  // Parts of rank 0's time.
  Seconds tp_wait, pp_wait, dp_wait, sync_wait, optimizer;
  friend bool operator==(const StepEvent&, const StepEvent&) = default;
};

// A loss on held-out samples.
struct EvalEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::optional<double> loss;  // nullopt: not finite
  friend bool operator==(const EvalEvent&, const EvalEvent&) = default;
};

// What the losses say of the critical batch. Written where it has changed visibly.
struct CalibrationEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  // The critical batch over the noise scale, with the interval that holds 95% of the belief.
  double calibration = 0, low = 0, high = 0;
  double lr_aware = 0;  // the probability that progress follows the lr-aware law
  double gns = 0;       // the noise scale then
  double lr = 0;
  friend bool operator==(const CalibrationEvent&, const CalibrationEvent&) = default;
};

enum class DecisionAction {
  kKeep,
  kSwitch,
  kLater,  // the run ends here, and a resumed run begins at the best candidate
};
inline constexpr std::array kDecisionActions = {DecisionAction::kKeep, DecisionAction::kSwitch,
                                                DecisionAction::kLater};
std::string_view to_string(DecisionAction action);

struct DecisionEvent {
  std::int64_t step = 0;
  std::int64_t candidates = 0;
  ParallelPlan best_plan;
  std::int64_t best_global_batch = 0;
  double gain = 0;
  DecisionAction action = DecisionAction::kKeep;
  std::string why;     // one line for a person
  std::string reason;  // `why` without the best candidate's name; empty: nothing speaks for a move
  friend bool operator==(const DecisionEvent&, const DecisionEvent&) = default;
};

// A move to another batch or layout, done or failed.
struct ReconfigureEvent {
  std::int64_t step = 0;
  ParallelPlan from, to;
  std::int64_t global_batch_from = 0, global_batch_to = 0;
  bool done = false;
  std::string error;  // why it was not done
  Seconds pause;
  Bytes bytes_moved, bytes_read;
  Seconds groups, allocate, transfer, commit;  // the pause by phase
  friend bool operator==(const ReconfigureEvent&, const ReconfigureEvent&) = default;
};

struct CheckpointEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::string path;   // empty: it was not saved
  std::string error;  // why it was not saved
  Bytes bytes;
  Seconds copy, write;
  friend bool operator==(const CheckpointEvent&, const CheckpointEvent&) = default;
};

struct BadStepEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::optional<double> loss, grad_norm;  // nullopt: not finite
  OnBadStep action = OnBadStep::kStop;
  std::string from;  // the checkpoint that the run went back to; empty: none
  std::string why;
  friend bool operator==(const BadStepEvent&, const BadStepEvent&) = default;
};

struct EndEvent {
  EndReason reason = EndReason::kSteps;
  std::string error;  // empty: none
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::optional<double> loss;  // nullopt: there is none, or it is not finite
  std::optional<double> held_out_loss;
  Seconds seconds;
  double tokens_per_s = 0;
  std::int64_t moves = 0;
  Seconds pause;
  friend bool operator==(const EndEvent&, const EndEvent&) = default;
};

using Event =
    std::variant<StartEvent, RestartEvent, StepEvent, EvalEvent, CalibrationEvent, DecisionEvent,
                 ReconfigureEvent, CheckpointEvent, BadStepEvent, EndEvent>;

struct TimedEvent {
  Seconds t;  // since the process that wrote the event opened its EventStream
  Event event;
  friend bool operator==(const TimedEvent&, const TimedEvent&) = default;
};

}  // namespace copus
