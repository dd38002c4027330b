// Controller: observes a run's steps and asks the policy where the run should go. Live runs and
// simulated runs use the same controller, so a simulation tests what runs live.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "copus/goodput/candidates.h"
#include "copus/goodput/drive.h"
#include "copus/goodput/noise_scale.h"
#include "copus/goodput/policy.h"
#include "copus/goodput/step_times.h"

namespace copus {

struct ControllerOptions {
  PolicyOptions policy;
  NoiseScaleOptions noise;
  // Standard deviation, on a log scale, of the factor between the noise scale of the whole gradient
  // and that of the norms' weights.
  double scales_factor_sd = 0.35;
  StepTimeOptions times;
  std::int64_t decide_every = 10;  // steps
  std::int64_t warm_steps = 2;     // steps after a move whose time is ignored
  // The assumed pause of a change of batch or micro-batch, until the first one is measured.
  Seconds in_place_pause{0.1};
  // How many of the best candidates are tried before a change of layout with uncertain step times;
  // 0: none. Each is tried from one decision to the next. The steps of a try count as training.
  std::int64_t probe = 0;
  double probe_sd = 0.05;  // a candidate is tried only if its step time is more uncertain than this
};

class Controller final : public Decider {
 public:
  // `start`: the run's configuration. `pause(from, to)`: the predicted pause of a move of state;
  // the controller corrects it by the measured pauses.
  Controller(ControllerOptions options, Candidate start, std::vector<Candidate> candidates,
             std::function<Seconds(const Configuration&, const Configuration&)> pause);

  void observe(const StepReport& step) override;
  // Combines the estimate of the whole gradient with that of the norms' weights.
  std::optional<NoiseEstimate> noise() const;
  std::optional<NoiseEstimate> scales_noise() const { return scales_noise_.estimate(); }
  // The Goodput of the current configuration, with its believed step time. Nothing while the noise
  // scale is not known.
  std::optional<double> goodput() const { return goodput(now_); }

  // Depends only on the options and the number of steps, so all ranks agree without a message.
  // Never true if adapting is off.
  static bool due(const ControllerOptions& options, std::int64_t step);
  bool due(std::int64_t step) const override { return due(options_, step); }
  // Returns the policy's decision, or a try of a candidate: a move whose `why` says that it is a
  // try.
  Decision consider(std::optional<Seconds> remaining) override;
  // Never proposes a configuration again if the move to it failed. A failure also restarts the
  // dwell, so that a run that cannot be moved is not interrupted at every decision.
  void moved(const Decision& decision, const MoveReport& report) override;
  void decide_for_later(std::optional<Seconds> remaining) override { later_ = consider(remaining); }
  const std::optional<Decision>& later() const { return later_; }
  // The configuration in which a run continues that is saved now. It is never one that is only
  // tried.
  const Configuration& resume_at() const;

  // The state that a resumed run keeps: the noise scale and the pauses, which take long to measure.
  // Step times, tries and failed moves are forgotten, because the machine may be another.
  Json to_json() const;
  Result<void> restore(const Json& json, const std::string& where);

  const Configuration& now() const { return now_.at; }
  // The believed step time of the configuration in which the run began.
  StepTime start_step_time() const { return times_.believe(start_); }
  const ControllerOptions& options() const { return options_; }

 private:
  // Candidates that are tried one after the other, and then compared with `home`.
  struct Probing {
    Configuration home;  // the run's configuration before the first try
    std::vector<Configuration> tried;
    std::vector<Configuration> left;  // still to try; the next one is at the end
  };

  const Candidate& find(const Configuration& at) const;
  std::optional<double> goodput(const Candidate& at) const;
  Seconds pause(const Configuration& from, const Configuration& to) const;
  Choice choice(const Candidate& candidate) const;
  Situation situation(std::optional<Seconds> remaining) const;

  std::optional<Probing> plan_probing(const Situation& situation) const;
  Decision probe_next();
  Decision finish_probing(std::optional<Seconds> remaining);

  ControllerOptions options_;
  std::vector<Candidate> candidates_;  // includes the run's first configuration
  Candidate start_, now_;
  std::function<Seconds(const Configuration&, const Configuration&)> predicted_pause_;
  NoiseScale noise_, scales_noise_;
  std::int64_t unmeasured_samples_ = 0;  // since the last step with norms
  StepTimes times_;
  Seconds predicted_pauses_, measured_pauses_;  // of all moves of state so far
  Seconds in_place_pause_;                      // the last one, or the assumed one
  std::int64_t steps_here_ = 0;
  std::optional<Configuration> came_from_;
  std::vector<Configuration> refused_;  // targets of failed moves
  std::vector<Configuration> probed_;   // tried before; not tried again
  std::optional<Probing> probing_;
  std::optional<Decision> later_;
};

}  // namespace copus
