// LiveJob: the job that drive() runs on real ranks, with steps, bad steps, evaluations, moves,
// saves and the reasons to stop. Every rank has one.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "copus/goodput/controller.h"
#include "copus/train/health/bad_step.h"
#include "copus/train/run/checkpoints.h"
#include "copus/train/run/run.h"
#include "copus/train/run/run_log.h"
#include "copus/train/run/start.h"
#include "copus/train/run/stopping.h"

namespace copus {

class LiveJob final : public Job {
 public:
  // `controller`: null on all ranks but rank 0. `log`: silent on all ranks but rank 0. REQUIRES:
  // all arguments outlive the job.
  LiveJob(GroupCache& groups, const RunOptions& options, const Dataset& data, RunStart& start,
          const RunLog& log, const Controller* controller, const std::atomic<bool>& stop_asked);

  // Writes the run's first event, and checks whether the run is over already.
  Result<void> begin();
  // Waits until the last checkpoint is on disk. Every rank calls this once the job is done.
  Result<void> finish_saving();
  // Returns what the run has reached, also after an error or exception.
  RunOutcome outcome() const;

  bool done() const override { return reason_.has_value(); }
  Result<StepReport> step() override;
  std::optional<Seconds> remaining() const override;
  bool stopping() const override { return result_.asked_to_stop > 0; }
  Result<void> observed(const StepReport& step) override;
  Result<void> decided(const Decision& decision) override;
  Result<MoveReport> move(const Configuration& to) override;
  Result<void> settled() override;

 private:
  using Clock = std::chrono::steady_clock;

  Seconds elapsed() const;
  std::int64_t tokens() const;  // consumed since the run began
  // Handles a step that changed no weight: stops, skips its samples, or goes back.
  Result<void> handle_bad_step();
  // Goes back to the weights of the newest checkpoint, and returns its folder. Samples that the run
  // has consumed stay consumed.
  Result<std::string> roll_back();
  // Returns false if the evaluation was given up because a rank was asked to stop.
  Result<bool> evaluate();
  // REQUIRES: leads_.
  Result<void> say_what_is_learned();
  // Evaluates if an evaluation is due, and looks for a reason to stop.
  Result<void> conclude();
  Asked asked_to_stop() const;
  Result<void> save();
  // Saves a checkpoint at the end of the run, if there is none of this step.
  Result<void> save_what_is_left();
  DecisionEvent decision_event(const Decision& decision, DecisionAction action) const;
  StepEvent step_event(const StepReport& step) const;

  GroupCache& groups_;
  const RunOptions& options_;
  const Dataset& data_;
  const RunStart& start_;
  Trainer& trainer_;
  const RunLog& log_;
  const Controller* controller_;
  const std::atomic<bool>& stop_asked_;
  // This is rank 0, which decides and records. Only its clock counts for the time limit, so rank 0
  // can tell the time limit from another rank's signal.
  const bool leads_;
  Checkpoints checkpoints_;
  BadSteps bad_steps_;

  // What the run has reached.
  std::int64_t steps_ = 0, samples_ = 0;
  std::optional<double> loss_, held_out_loss_;
  // The next loss does not go on from the last one.
  bool loss_begins_anew_ = false;
  std::uint64_t data_hash_ = 0;
  std::int64_t moves_ = 0;
  Seconds pause_;
  std::optional<CalibrationBelief::Interval> said_;  // in the last event
  // Why the run is over; empty: it is not over.
  std::optional<EndReason> reason_;
  std::string error_;

  StepResult result_;  // of the last step
  // When the run began, and when the time of the next step begins to count.
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
  bool late_ = false;               // the time limit was reached when the last step began
  Seconds late_step_;               // smoothed time of recent steps in this configuration
  std::optional<Seconds> trained_;  // the run's time up to its end, without the last save
};

}  // namespace copus
