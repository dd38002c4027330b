// Controller: watches a run's steps, asks the policy, moves the run. It drives a Job: a live run and
// a simulated one are two implementations, so what is evaluated in simulation is what runs live.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "copus/goodput/candidates.h"
#include "copus/goodput/noise_scale.h"
#include "copus/goodput/policy.h"
#include "copus/goodput/step_times.h"

namespace copus {

// What one step tells.
struct StepReport {
  std::int64_t step = 0;     // counted from 1
  std::int64_t samples = 0;  // consumed after it
  double loss = 0;
  double seconds = 0;
  std::vector<SquaredNorm> norms;  // empty: not measured in this step
};

// What became of a move.
struct MoveReport {
  bool done = false;    // false: the run goes on where it was
  std::string error;    // why not
  double pause_s = 0;
};

struct ControllerOptions {
  PolicyOptions policy;
  NoiseScaleOptions noise;
  StepTimeOptions times;
  std::int64_t decide_every = 10;  // steps
  std::int64_t warm_steps = 2;     // after a move, steps whose time is not counted
  // Best candidates that are tried, from one decision to the next, before a change of layout whose
  // step times are uncertain; 0: none. The steps count as training.
  std::int64_t probe = 0;
};

class Controller {
 public:
  // `start`: where the run is. `pause_s(from, to)`: what a move is predicted to take; corrected by
  // the moves that were made.
  Controller(ControllerOptions options, Candidate start, std::vector<Candidate> candidates,
             std::function<double(const Configuration&, const Configuration&)> pause_s);

  // After every step. The step's own terms, where it was measured.
  std::optional<NoiseTerms> observe(const StepReport& step);
  std::optional<NoiseEstimate> noise() const { return noise_.estimate(); }
  // Goodput of the current configuration by its believed step time; nothing while the noise scale
  // is not known.
  std::optional<double> goodput() const;

  // Whether consider() is due after the step that was observed last: known to every rank of a run
  // without a message (it depends on the number of steps alone).
  static bool due(const ControllerOptions& options, std::int64_t step);
  // Where to go. A probe of a candidate is a move too, and says so in `why`.
  Decision consider(std::optional<double> remaining_s);
  // What became of it. A configuration that failed is not tried again.
  void moved(const Decision& decision, const MoveReport& report);

  const Configuration& now() const { return now_.at; }

 private:
  Candidate find(const Configuration& at) const;
  Choice choice(const Candidate& candidate) const;
  std::optional<Decision> next_probe(const Decision& wanted);

  ControllerOptions options_;
  Candidate now_;
  std::vector<Candidate> candidates_;
  std::function<double(const Configuration&, const Configuration&)> predicted_pause_s_;
  NoiseScale noise_;
  StepTimes times_;
  double pause_ratio_ = 1;  // measured over predicted, of the moves so far
  std::int64_t steps_here_ = 0;
  std::optional<Configuration> came_from_;
  std::vector<Configuration> refused_;  // moves that failed
  struct Probing {
    std::vector<Configuration> left;  // yet to be tried
    Configuration home;
  };
  std::optional<Probing> probing_;
};

// A run that can be moved.
class Job {
 public:
  virtual ~Job() = default;
  virtual bool done() const = 0;
  virtual Result<StepReport> step() = 0;
  virtual std::optional<double> remaining_s() const = 0;
  // Told of every step's outcome and of every decision, to write it down.
  virtual Result<void> observed(const StepReport& step, const std::optional<NoiseTerms>& terms,
                                const Controller& controller) = 0;
  virtual Result<void> decided(const Decision& decision) = 0;
  virtual Result<MoveReport> move(const Configuration& to) = 0;
};

// Steps, and where one is due a decision, until the job is done.
Result<void> drive(Job& job, Controller& controller);

}  // namespace copus
