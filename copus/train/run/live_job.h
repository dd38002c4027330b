// LiveJob: a run on real ranks, as drive() has it: steps, bad steps, evaluations, moves, saves, and
// the reasons to stop. Every rank has one.
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
  // `controller`: rank 0's, as what `log` writes; null on the others. All outlive the job.
  LiveJob(GroupCache& groups, const RunOptions& options, const Dataset& data, RunStart& start,
          const RunLog& log, const Controller* controller, const std::atomic<bool>& stop_asked);

  // The run begins now.
  Result<void> begin();
  // Until what was saved last is on disk. On every rank, once the job is done.
  Result<void> finish_saving();
  // What was reached, however it ended.
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
  // The step changed no weight: stop, leave its samples out, or go back.
  Result<void> handle_bad_step();
  // To the weights of the newest checkpoint, which is returned; what was consumed stays so.
  Result<std::string> roll_back();
  // False: given up, for a rank was asked to stop.
  Result<bool> evaluate();
  // Evaluates where it is time to, and looks for a reason to stop.
  Result<void> conclude();
  Asked asked_to_stop() const;
  Result<void> save();
  // The run ends here: what no checkpoint has yet.
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
  // Rank 0 decides and records. Its clock is the run's: it can tell the time limit from another
  // rank's signal.
  const bool leads_;
  Checkpoints checkpoints_;
  BadSteps bad_steps_;

  // What was reached.
  std::int64_t steps_ = 0, samples_ = 0;
  std::optional<double> loss_, held_out_loss_;
  std::uint64_t data_hash_ = 0;
  std::int64_t moves_ = 0;
  Seconds pause_;
  // Why the run is over; nothing: it is not.
  std::optional<EndReason> reason_;
  std::string error_;

  StepResult result_;  // of the last step
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
  bool late_ = false;               // the time limit was over as the last step began
  Seconds late_step_;               // a step's time, smoothed, in this configuration
  std::optional<Seconds> trained_;  // when the run was over: without the last save
};

}  // namespace copus
