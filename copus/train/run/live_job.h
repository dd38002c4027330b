// LiveJob: a run on real ranks, as the controller drives it: steps, events, what a person sees, and
// the reasons to stop. Every rank has one; rank 0's is driven, the others follow it.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "copus/goodput/controller.h"
#include "copus/train/move/move.h"
#include "copus/train/move/trainer_saver.h"
#include "copus/train/record/phases.h"
#include "copus/train/record/recorder.h"
#include "copus/train/run/start.h"

namespace copus {

class LiveJob final : public Job {
 public:
  LiveJob(GroupCache& groups, const RunOptions& options, const Dataset& data, RunStart& start,
          Recorder* recorder, Progress* progress, const std::atomic<bool>& stop_asked);

  // The run begins now.
  Result<void> begin();
  // Rank 0 drives; the others do what it decides.
  Result<void> follow();

  bool done() const override { return !outcome_.reason.empty(); }
  Result<StepReport> step() override;
  std::optional<Seconds> remaining() const override;
  Result<void> observed(const StepReport& step, const std::optional<NoiseTerms>& terms,
                        const Controller& controller) override;
  Result<void> decided(const Decision& decision) override;
  Result<MoveReport> move(const Configuration& to) override;
  bool stopping() const override { return result_.asked_to_stop > 0; }
  Result<void> settled(const Controller& controller) override { return settle(&controller); }

  // Until what was saved last is on disk. On every rank, once the job is done.
  Result<void> finish_saving();

  RunOutcome& outcome() { return outcome_; }
  double elapsed_s() const;
  std::int64_t tokens() const;  // consumed since the run began
  double trained_s() const;     // without the last save
  // What moving brought, in words; empty where nothing moved.
  std::string summary(const Controller& controller) const;

 private:
  Configuration now() const;
  // Evaluates where it is time to, and looks for a reason to stop. `controller`: rank 0's.
  Result<void> conclude(const Controller* controller);
  // Saves where it is time to: what was decided after the step is part of it.
  Result<void> settle(const Controller* controller);
  // False: given up, for a rank was asked to stop.
  Result<bool> evaluate();
  // The step changed no weight: stop, leave its samples out, or go back.
  Result<void> handle_bad_step();
  // To the weights of the newest checkpoint, which is returned; what was consumed stays so.
  Result<std::string> roll_back();
  // What rank 0's decided() says.
  Result<void> do_as_decided();
  void stop_for(const char* reason, const std::string& error);
  Result<void> save(const Controller* controller);
  // The run ends here: what no checkpoint has yet.
  Result<void> save_what_is_left(const Controller* controller);
  Result<void> record_save(const SaveOutcome& saved);
  Result<void> record_begin() const;
  Result<void> record_step(const StepReport& step, const Controller& controller);
  Result<void> record_decision(const Decision& decision, const char* action) const;
  void say(const std::string& text) const;

  using Clock = std::chrono::steady_clock;
  GroupCache& groups_;
  const RunOptions& o_;
  const Dataset& data_;
  const RunStart& start_;
  Trainer& trainer_;
  Recorder* recorder_;
  Progress* progress_;
  const std::atomic<bool>& stop_asked_;
  RunOutcome outcome_;
  StepResult result_;  // of the last step
  Phases phases_;
  BadSteps bad_steps_;
  std::uint64_t data_hash_ = 0;
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
  bool late_ = false;
  double late_step_s_ = 0;  // smoothed, in this configuration
  std::optional<double> trained_s_;
  bool save_now_ = false;
  std::int64_t saved_step_ = 0;        // the last that was saved, or gone on from
  double waited_s_ = 0;                // for the save before the one under way
  std::optional<TrainerSaver> saver_;  // none: --checkpoint-every off
};

}  // namespace copus
