// SimJob: a whole run in virtual time. The controller of live runs drives it.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "copus/goodput/controller.h"
#include "copus/sim/loss_curve.h"

namespace copus {

// Failures of the cluster and checkpoints.
struct FailureOptions {
  Seconds between{0};  // mean time between failures of the whole cluster; 0: no failures
  Seconds checkpoint_every{1800};
  Seconds checkpoint{0};  // pause of the run for a checkpoint
  Seconds restart{300};   // from a failure to the next step
};

// The true world of a simulation. The controller's beliefs may differ from it.
struct World {
  LossCurve curve;
  ProgressLaw law;
  // Critical batch / noise scale.
  double calibration = 2;
  // Number of directions of the gradient's noise (sample_norms). With 100, norms scatter as in a
  // live run.
  double noise_rank = 100;
  double loss_noise = 0.4;    // standard deviation of the loss from sample to sample
  double step_jitter = 0.02;  // relative spread of one step's time
  std::function<Seconds(const Candidate&)> step_time;
  std::function<Seconds(const Configuration&, const Configuration&)> pause;
  Seconds in_place_pause{0.1};
  FailureOptions failures;
};

struct SimOptions {
  std::vector<double> losses;  // falling; the run ends at the last
  double most_steps = 2e6;     // the run also ends after so many steps; steps that are repeated
                               // after a failure count
  std::uint64_t seed = 1;
};

// A configuration and when the run began to use it.
struct SimPhase {
  Seconds begin;
  Configuration at;
};

struct SimPoint {
  Seconds t;
  double loss = 0;
  double samples = 0;
  Seconds pauses;  // sum until then
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
  std::vector<SimPoint> crossings;  // of each loss that the run reached, in order
  // One each time that the loss has fallen by 0.2% of the way from the start to the last loss.
  // (Recorded runs and the oracle have points at other distances.)
  std::vector<SimPoint> points;
};

class SimJob final : public Job {
 public:
  // `start`: the run's first configuration. `find` returns the candidate of a configuration.
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
  std::mt19937_64 failures_;  // separate, so that all policies of a seed have the same failures
  std::mt19937_64 losses_;    // separate, so that noisier losses change nothing else
  Candidate now_;
  Seconds step_time_;
  double steps_taken_ = 0;  // repeated steps included
  double progress_ = 0;
  double loss_;
  bool loss_begins_anew_ = false;  // after a failure
  double noted_loss_;
  Saved saved_;
  Seconds next_failure_;
  SimOutcome outcome_;
};

}  // namespace copus
