// Controller: watches a run's steps and asks the policy where the run goes. It decides for live runs
// and for simulated ones, so what is evaluated in simulation is what runs live.
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
  // Spread of the factor between the noise scale of the whole gradient and that of the norms'
  // weights, on a log scale: a factor of e^this either way is one standard deviation.
  double scales_factor_sd = 0.35;
  StepTimeOptions times;
  std::int64_t decide_every = 10;  // steps
  std::int64_t warm_steps = 2;     // after a move, steps whose time is not counted
  // What a change of batch or micro-batch in place is taken to pause, until one was made.
  Seconds in_place_pause{0.1};
  // Best candidates that are tried, from one decision to the next, before a change of layout whose
  // step times are uncertain; 0: none. The steps count as training.
  std::int64_t probe = 0;
  double probe_sd = 0.05;  // a step time less uncertain than this is not worth a try
};

class Controller final : public Decider {
 public:
  // `start`: where the run is. `pause(from, to)`: what a move of state is predicted to take;
  // corrected by the moves that were made.
  Controller(ControllerOptions options, Candidate start, std::vector<Candidate> candidates,
             std::function<Seconds(const Configuration&, const Configuration&)> pause);

  void observe(const StepReport& step) override;
  // From the whole gradient's norms and from the norms' weights together.
  std::optional<NoiseEstimate> noise() const;
  std::optional<NoiseEstimate> scales_noise() const { return scales_noise_.estimate(); }
  // Goodput of the current configuration by its believed step time; nothing while the noise scale
  // is not known.
  std::optional<double> goodput() const { return goodput(now_); }

  // Known to every rank of a run without a message: it depends on the number of steps alone. Never
  // where the policy adapts nothing.
  static bool due(const ControllerOptions& options, std::int64_t step);
  bool due(std::int64_t step) const override { return due(options_, step); }
  // A try of a candidate is a move too, and says so in `why`.
  Decision consider(std::optional<Seconds> remaining) override;
  // A configuration that failed is not tried again, and a failure starts the dwell anew: a run that
  // cannot be moved is not interrupted at every decision.
  void moved(const Decision& decision, const MoveReport& report) override;
  void decide_for_later(std::optional<Seconds> remaining) override {
    later_ = consider(remaining);
  }
  const std::optional<Decision>& later() const { return later_; }
  // Where a run goes on that is saved now: not in the middle of a try.
  const Configuration& resume_at() const;

  // What a run that is started again would be long in finding out anew: the noise scale, and what
  // moves took. Step times, tries and refusals begin anew: the machine may be another.
  Json to_json() const;
  Result<void> restore(const Json& json, const std::string& where);

  const Configuration& now() const { return now_.at; }
  // What a step is believed to take where the run began.
  StepTime start_step_time() const { return times_.believe(start_); }
  const ControllerOptions& options() const { return options_; }

 private:
  // Candidates that are tried one after the other, then compared with where they were tried from.
  struct Probing {
    Configuration home;
    std::vector<Configuration> tried;
    std::vector<Configuration> left;  // the next one last
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
  std::vector<Candidate> candidates_;  // where the run started among them
  Candidate start_, now_;
  std::function<Seconds(const Configuration&, const Configuration&)> predicted_pause_;
  NoiseScale noise_, scales_noise_;
  std::int64_t unmeasured_samples_ = 0;  // since norms were taken last
  StepTimes times_;
  Seconds predicted_pauses_, measured_pauses_;  // of all moves of state so far
  Seconds in_place_pause_;                      // the last one, or what is assumed
  std::int64_t steps_here_ = 0;
  std::optional<Configuration> came_from_;
  std::vector<Configuration> refused_;  // moves that failed
  std::vector<Configuration> probed_;   // none is tried twice
  std::optional<Probing> probing_;
  std::optional<Decision> later_;
};

}  // namespace copus
