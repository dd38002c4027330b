// The loop of every run: it makes steps, asks for a decision when one is due, and moves the run,
// until the job is done.
//
// A job is a live run (on each of its ranks) or a simulated one. A decider decides where the run
// goes: on rank 0 and in simulations this is the controller; on the other ranks it is an object
// that receives the controller's decisions.
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

// The measurements of one step.
struct StepReport {
  std::int64_t step = 0;       // counted from 1
  std::int64_t samples = 0;    // that the run has consumed, with this step's
  std::optional<double> loss;  // nothing: the step was skipped
  // This loss does not go on from the last step's: the weights went back to a checkpoint, or the
  // data are others.
  bool loss_begins_anew = false;
  double learning_rate = 1;  // the schedule's, relative to its peak, without the batch's factor
  Seconds time;
  std::vector<SquaredNorm> norms;        // empty: not measured in this step
  std::vector<SquaredNorm> scale_norms;  // of the norms' weights alone; empty: not measured
};

// The outcome of a move.
struct MoveReport {
  bool done = false;  // false: the move failed, and the run stays in its configuration
  std::string error;  // why it failed
  Seconds pause;
};

// Decides in which configuration a run continues.
class Decider {
 public:
  Decider() = default;
  Decider(const Decider&) = default;
  Decider(Decider&&) = default;
  Decider& operator=(const Decider&) = default;
  Decider& operator=(Decider&&) = default;
  virtual ~Decider() = default;

  // Called after every step.
  virtual void observe(const StepReport& step) = 0;
  // Whether a decision is due after this step.
  virtual bool due(std::int64_t step) const = 0;
  // Decides where to go.
  virtual Decision consider(std::optional<Seconds> remaining) = 0;
  // Called after a move. REQUIRES: decision.move, and it is the last decision.
  virtual void moved(const Decision& decision, const MoveReport& report) = 0;
  // Called in place of consider() if the run stops after this step. The decision is saved, and the
  // run takes it when it resumes.
  virtual void decide_for_later(std::optional<Seconds> remaining) = 0;
};

// A run that can be moved to another configuration.
class Job {
 public:
  virtual ~Job() = default;
  virtual bool done() const = 0;
  virtual Result<StepReport> step() = 0;
  virtual std::optional<Seconds> remaining() const = 0;
  // Whether the run stops after this step although it is not finished.
  virtual bool stopping() const { return false; }
  // Record a step, after the decider has observed it, and a decision.
  virtual Result<void> observed(const StepReport& step) = 0;
  virtual Result<void> decided(const Decision& decision) = 0;
  virtual Result<MoveReport> move(const Configuration& to) = 0;
  // Called when the step, its decision and its move are done: the time to save a checkpoint.
  virtual Result<void> settled() { return {}; }
};

Result<void> drive(Job& job, Decider& decider);

}  // namespace copus
