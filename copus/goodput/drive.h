// The one loop of every run: steps, and where one is due a decision, until the job is done. A job is
// what runs: a live run, on each of its ranks, or a simulated one. A decider is who says where it
// goes: the controller, or on all ranks but the first whoever hears of the controller's decisions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/base/units.h"
#include "copus/goodput/noise_scale.h"
#include "copus/goodput/policy.h"

namespace copus {

// What one step tells.
struct StepReport {
  std::int64_t step = 0;     // counted from 1
  std::int64_t samples = 0;  // consumed after it
  double loss = 0;
  Seconds time;
  std::vector<SquaredNorm> norms;        // empty: not measured in this step
  std::vector<SquaredNorm> scale_norms;  // of the norms' weights alone; empty likewise
};

// What became of a move.
struct MoveReport {
  bool done = false;  // false: the run goes on where it was
  std::string error;  // why not
  Seconds pause;
};

// Who decides where a run goes.
class Decider {
 public:
  Decider() = default;
  Decider(const Decider&) = default;
  Decider(Decider&&) = default;
  Decider& operator=(const Decider&) = default;
  Decider& operator=(Decider&&) = default;
  virtual ~Decider() = default;

  // After every step.
  virtual void observe(const StepReport& step) = 0;
  // Whether a decision is due after this step.
  virtual bool due(std::int64_t step) const = 0;
  // Where to go.
  virtual Decision consider(std::optional<Seconds> remaining) = 0;
  // What became of it. REQUIRES: decision.move, and it is the last that was made.
  virtual void moved(const Decision& decision, const MoveReport& report) = 0;
  // The run stops here, and where to go is due: decided for whoever goes on.
  virtual void decide_for_later(std::optional<Seconds> remaining) = 0;
};

// A run that can be moved.
class Job {
 public:
  virtual ~Job() = default;
  virtual bool done() const = 0;
  virtual Result<StepReport> step() = 0;
  virtual std::optional<Seconds> remaining() const = 0;
  // The step was the last for now, though the run is not over.
  virtual bool stopping() const { return false; }
  // Told of every step's outcome, once the decider knows it, and of every decision: to write them
  // down.
  virtual Result<void> observed(const StepReport& step) = 0;
  virtual Result<void> decided(const Decision& decision) = 0;
  virtual Result<MoveReport> move(const Configuration& to) = 0;
  // The step, and what was decided after it, are done: time to save.
  virtual Result<void> settled() { return {}; }
};

Result<void> drive(Job& job, Decider& decider);

}  // namespace copus
