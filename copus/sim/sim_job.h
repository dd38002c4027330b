// SimJob: a whole run in virtual time. The same controller drives it as drives a live run.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "copus/goodput/controller.h"
#include "copus/sim/loss_curve.h"

namespace copus {

// A cluster that breaks. No time between failures: it never does.
struct FailureOptions {
  Seconds between{0};  // mean, of the whole cluster
  Seconds checkpoint_every{1800};
  Seconds checkpoint{0};  // that a checkpoint holds the run up
  Seconds restart{300};   // from a failure to the first step again
};

// How the world is. What the controller believes is its own matter.
struct World {
  LossCurve curve;
  ProgressLaw law;
  // Critical batch / noise scale.
  double calibration = 2;
  // Directions that the gradient's noise has (sample_norms); 100 scatters norms as a live run's do.
  double noise_rank = 100;
  double step_jitter = 0.02;  // relative spread of one step's time
  std::function<Seconds(const Candidate&)> step_time;
  std::function<Seconds(const Configuration&, const Configuration&)> pause;
  Seconds in_place_pause{0.1};
  FailureOptions failures;
};

struct SimOptions {
  std::vector<double> losses;  // falling; the run ends at the last
  double most_steps = 2e6;     // a run that has not got there by then is given up; those that are
                               // done again after a failure count
  std::uint64_t seed = 1;
};

// Where a run was for a while.
struct SimPhase {
  Seconds begin;
  Configuration at;
};

struct SimPoint {
  Seconds t;
  double loss = 0;
  double samples = 0;
  Seconds pauses;  // until then
};

struct SimOutcome {
  bool reached = false;
  Seconds time;
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t switches = 0;  // of batch or layout
  std::int64_t layout_switches = 0;
  std::int64_t failures = 0;
  Seconds pause;  // of switches
  Seconds lost;   // by failures and checkpoints
  std::vector<SimPhase> phases;
  std::vector<SimPoint> crossings;  // of each loss that was asked for, as far as it got
  // Each time the loss has fallen by about 1% of what there is to fall.
  std::vector<SimPoint> points;
};

class SimJob final : public Job {
 public:
  // `start`: where the run begins; `find` gives the candidate of a configuration to move to.
  SimJob(const World& world, const SimOptions& options, Candidate start,
         std::function<const Candidate&(const Configuration&)> find);

  bool done() const override;
  Result<StepReport> step() override;
  std::optional<Seconds> remaining() const override;
  Result<void> observed(const StepReport&) override { return {}; }
  Result<void> decided(const Decision&) override { return {}; }
  Result<MoveReport> move(const Configuration& to) override;

  const SimOutcome& outcome() const { return outcome_; }

 private:
  struct Saved {
    Seconds t;
    double progress = 0;
    std::int64_t steps = 0, samples = 0;
  };
  void note();
  void save_or_fail();
  Seconds time_to_failure();

  const World& world_;
  SimOptions options_;
  std::function<const Candidate&(const Configuration&)> find_;
  std::mt19937_64 random_;
  std::mt19937_64 failures_;  // of their own: every policy of a seed meets the same
  Candidate now_;
  Seconds step_time_;
  double steps_taken_ = 0;  // those done again too
  double progress_ = 0;
  double loss_;
  double noted_loss_;
  Saved saved_;
  Seconds next_failure_;
  SimOutcome outcome_;
};

}  // namespace copus
