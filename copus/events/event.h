// What a run says: one struct per event. event_json.h prints and parses all of them, and nobody
// else reads or writes them by key.
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

// Why a run, or this process's part of it, ended.
enum class EndReason {
  kSteps,
  kSamples,
  kLoss,
  kTime,
  kSignal,
  kNotFinite,  // a loss or a gradient
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

// An option that a resumed run has otherwise than before, as config.toml spells it.
struct OptionChange {
  std::string name;
  std::string from;  // empty: it was not in the file
  std::string to;    // empty: it is not in the file any more
  friend bool operator==(const OptionChange&, const OptionChange&) = default;
};

// A run went on, in another process.
struct RestartEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::string from;  // the checkpoint; empty: none was there yet
  ParallelPlan plan;
  std::int64_t global_batch = 0;
  std::int64_t ranks = 0;
  std::string why;
  std::string skipped;  // newer checkpoints that could not be used, and why; empty: none
  std::vector<OptionChange> options;  // that changed with this start
  friend bool operator==(const RestartEvent&, const RestartEvent&) = default;
};

struct StepEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;  // consumed after it
  std::int64_t tokens = 0;   // likewise
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  std::int64_t global_batch = 0;
  ParallelPlan plan;
  Seconds step_time;
  double tokens_per_s = 0;
  std::optional<double> mfu;  // 0 to 1
  // The gradient noise scale, smoothed, and its 95% interval; nothing while it is not known.
  std::optional<double> gns, gns_low, gns_high;
  std::optional<double> g2, s;       // the step's own raw terms, where they were measured
  std::optional<double> gns_scales;  // from the norms' weights alone
  std::vector<NormEntry> norms;      // empty: not measured in this step
  std::vector<NormEntry> scale_norms;
  std::optional<double> critical_batch;
  std::optional<double> goodput;
  std::uint64_t data_hash = 0;  // of all samples so far
  // Where the rank's time went.
  Seconds tp_wait, pp_wait, dp_wait, sync_wait, optimizer;
  friend bool operator==(const StepEvent&, const StepEvent&) = default;
};

// A loss on held-out samples.
struct EvalEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::optional<double> loss;  // nothing: it was not finite
  friend bool operator==(const EvalEvent&, const EvalEvent&) = default;
};

enum class DecisionAction {
  kKeep,
  kSwitch,
  kLater,  // whoever goes on with the run begins there
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
  std::string reason;  // what speaks for the best one, which it does not name; empty: nothing
  friend bool operator==(const DecisionEvent&, const DecisionEvent&) = default;
};

// A move, made or failed.
struct ReconfigureEvent {
  std::int64_t step = 0;
  ParallelPlan from, to;
  std::int64_t global_batch_from = 0, global_batch_to = 0;
  bool done = false;
  std::string error;  // not done: why
  Seconds pause;
  Bytes bytes_moved, bytes_read;
  Seconds groups, allocate, transfer, commit;  // the pause by phase
  friend bool operator==(const ReconfigureEvent&, const ReconfigureEvent&) = default;
};

struct CheckpointEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::string path;   // empty: it was not saved
  std::string error;  // then: why
  Bytes bytes;
  Seconds copy, write;
  friend bool operator==(const CheckpointEvent&, const CheckpointEvent&) = default;
};

struct BadStepEvent {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::optional<double> loss, grad_norm;  // nothing: no finite number
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
  std::optional<double> loss;  // nothing: there is none, or it is no finite number
  std::optional<double> held_out_loss;
  Seconds seconds;
  double tokens_per_s = 0;
  std::int64_t moves = 0;
  Seconds pause;
  friend bool operator==(const EndEvent&, const EndEvent&) = default;
};

using Event = std::variant<StartEvent, RestartEvent, StepEvent, EvalEvent, DecisionEvent,
                           ReconfigureEvent, CheckpointEvent, BadStepEvent, EndEvent>;

struct TimedEvent {
  Seconds t;  // since the process of the run that wrote it began
  Event event;
  friend bool operator==(const TimedEvent&, const TimedEvent&) = default;
};

}  // namespace copus
