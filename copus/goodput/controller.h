// Controller: observes a run's steps and asks the policy where the run should go. Live runs and
// simulated runs use the same controller, so a simulation tests what runs live.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "copus/goodput/calibration_belief.h"
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
  // What a run that learns its critical batch from its losses believes before; nothing:
  // policy.calibration and policy.kind hold. A run that tracks the critical batch does not learn.
  std::optional<CalibrationPrior> calibration;
  // The share of the run's time so far that tries of batches, which show the critical batch, may
  // have cost: their pauses, and the progress that they are expected to lose; 0: no tries.
  double batch_probe = 0.03;
  std::int64_t decide_every = 10;  // steps
  std::int64_t warm_steps = 2;     // steps after a move whose time is ignored
  // The assumed pause of a change of batch or micro-batch, until the first one is measured.
  Seconds in_place_pause{0.1};
  // The share of the run's time, or of the horizon, that tries of layouts with uncertain step times
  // may take: their pauses, and what their steps take longer; 0: no tries.
  double probe = 0.01;
  // Whether a change of layout with an uncertain step time is judged by its measured steps, and
  // taken back if they are slower.
  bool judge_moves = true;
  std::string machine;  // step times and failed moves of another machine are not restored
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
  // The critical batch over the noise scale, as it is believed; its ends are equal if it is given.
  CalibrationBelief::Interval calibration() const;
  // Nothing while the noise scale is not known.
  std::optional<double> critical_batch() const;
  // Whether the losses have said anything of it: whether the batch has changed.
  bool has_learned() const { return calibration_ && calibration_->changes() > 0; }
  // The probability that progress follows the lr-aware law.
  double lr_aware() const;
  // The Goodput of the current configuration, with its measured step time (before there is one,
  // with the believed one). Nothing while the noise scale is not known.
  std::optional<double> goodput() const;

  // Depends only on the options and the number of steps, so all ranks agree without a message.
  // Never true if adapting is off.
  static bool due(const ControllerOptions& options, std::int64_t step);
  bool due(std::int64_t step) const override { return due(options_, step); }
  // Returns the policy's decision, or a try of a layout: a move whose `why` says that it is a try.
  Decision consider(std::optional<Seconds> remaining) override;
  // Never proposes a configuration again if the move to it failed. A failure also restarts the
  // dwell, so that a run that cannot be moved is not interrupted at every decision.
  void moved(const Decision& decision, const MoveReport& report) override;
  void decide_for_later(std::optional<Seconds> remaining) override { later_ = consider(remaining); }
  const std::optional<Decision>& later() const { return later_; }
  // The configuration in which a run continues that is saved now. It is never one that is only
  // tried.
  const Configuration& resume_at() const;

  // The state that a resumed run keeps: the noise scale, the pauses, the step times, the failed
  // moves, and what was spent on tries.
  Json to_json() const;
  Result<void> restore(const Json& json, const std::string& where);

  const Configuration& now() const { return now_.at; }
  // The believed step time of the configuration in which the run began.
  StepTime start_step_time() const { return times_.believe(start_); }
  const ControllerOptions& options() const { return options_; }

 private:
  // The time after a move to a layout whose step time was uncertain. It ends where the layout's
  // steps were measured: the run stays, goes back, or tries another layout.
  struct Trial {
    Configuration home;  // where the run was before, how long, and where it had come from
    std::int64_t steps_at_home = 0;
    std::optional<Configuration> came_home_from;
    std::vector<Configuration> tried;
    bool exploring = false;  // a try, and not a move of the policy
    double promised = 0;     // ln(speed over home's layout), as it was believed
    Seconds usual;  // a step of home's layout, as believed; of a try: of the fastest so far
    Seconds cost;   // pauses, and what the steps take longer than usual
  };
  // A batch that is tried for what it shows of the critical batch.
  struct BatchTry {
    Configuration at;
    Seconds length, expected_cost;
    Seconds end;         // the run's elapsed time then
    Configuration home;  // where the run was before, how long, and where it had come from
    std::int64_t steps_at_home = 0;
    std::optional<Configuration> came_home_from;
  };
  // A layout that a trial found slower than another one at that batch.
  struct Lost {
    Configuration at;
    Seconds winner_step;  // then; the verdict holds while the machine is about as fast
    Configuration winner;
  };

  const Candidate& find(const Configuration& at) const;
  std::optional<double> finite_gns() const;
  Seconds pause(const Configuration& from, const Configuration& to) const;
  Choice choice(const Candidate& candidate) const;
  Situation situation(std::optional<Seconds> remaining) const;

  // The policy's options, with a longer dwell after moves that did not keep their promise.
  PolicyOptions patient_policy() const;
  Seconds left(std::optional<Seconds> remaining) const;
  Seconds to_expect(std::optional<Seconds> remaining) const;
  bool has_lost(const Configuration& at) const;
  // The fastest candidate with this placement at the current batch; null: there is none.
  const Candidate* at_batch(const Configuration& layout) const;
  const Candidate* best_try(const Candidate& reference, std::optional<Seconds> remaining) const;
  std::optional<BatchTry> best_batch_try(std::optional<Seconds> remaining) const;
  Decision propose_batch_try(const BatchTry& to);
  Decision end_batch_try(std::optional<Seconds> remaining);
  Decision stay(std::string why) const;
  Decision propose_try(const Candidate& to, const Candidate& reference);
  Decision judge_trial(std::optional<Seconds> remaining);
  void end_trial(const Candidate& winner);
  void charge_warm_up();

  ControllerOptions options_;
  std::vector<Candidate> candidates_;  // includes the run's first configuration
  Candidate start_, now_;
  std::function<Seconds(const Configuration&, const Configuration&)> predicted_pause_;
  NoiseScale noise_, scales_noise_;
  std::optional<CalibrationBelief> calibration_;
  std::int64_t unmeasured_samples_ = 0;  // since the last step with norms
  StepTimes times_;
  Seconds predicted_pauses_, measured_pauses_;  // of all moves of state so far
  Seconds in_place_pause_;                      // the last one, or the assumed one
  std::int64_t steps_here_ = 0;                 // a try and the return from it do not end this stay
  std::int64_t steps_since_move_ = 0;           // of whatever move
  bool has_moved_ = false;
  std::optional<Configuration> came_from_;
  std::vector<Configuration> refused_;  // targets of failed moves
  std::vector<Lost> lost_;
  std::optional<Trial> trial_;
  bool proposes_try_ = false;  // the last decision is a try
  bool returns_ = false;       // the last decision goes back from a trial
  std::optional<Trial> left_;  // the trial that it goes back from
  Seconds elapsed_, probed_;   // steps and pauses so far; what tries have cost
  // The last decision's; the one that is under way; the one from which the last decision goes home.
  std::optional<BatchTry> proposed_batch_, batch_try_, ended_batch_try_;
  Seconds batch_tries_cost_;   // so far, as it was expected
  std::int64_t misses_ = 0;    // moves in a row that did not keep their promise
  std::vector<Seconds> warm_;  // the first steps since the last move, until they are charged
  bool warm_in_place_ = false, warm_after_return_ = false;
  std::optional<Decision> later_;
};

}  // namespace copus
