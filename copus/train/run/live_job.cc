#include "copus/train/run/live_job.h"

#include <cmath>
#include <utility>

#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/train/checkpoint/run_state.h"
#include "copus/train/engine/adamw.h"
#include "copus/train/move/move.h"
#include "copus/train/options/open_data.h"
#include "copus/train/run/announce.h"
#include "copus/train/run/stopping.h"

namespace copus {
namespace {

std::vector<NormEntry> entries_of(const std::vector<SquaredNorm>& norms) {
  std::vector<NormEntry> entries;
  entries.reserve(norms.size());
  for (const SquaredNorm& norm : norms) entries.push_back({norm.batch, norm.value, norm.count});
  return entries;
}

// Returns x; a NaN loses its sign, which has no meaning.
double without_sign_of_nan(double x) { return std::isnan(x) ? NAN : x; }

}  // namespace

LiveJob::LiveJob(GroupCache& groups, const RunOptions& options, const Dataset& data,
                 RunStart& start, const RunLog& log, const Controller* controller,
                 const std::atomic<bool>& stop_asked)
    : groups_(groups),
      options_(options),
      data_(data),
      start_(start),
      trainer_(*start.trainer),
      log_(log),
      controller_(controller),
      stop_asked_(stop_asked),
      leads_(start.trainer->mesh().rank == 0),
      checkpoints_(options, *start.trainer, log, start.step, !start.from.empty()),
      bad_steps_(options.bad_steps),
      steps_(start.step),
      samples_(start.samples),
      loss_(start.loss),
      data_hash_(start.data_hash) {
  trainer_.set_judge([this](double loss, double norm) { return bad_steps_.judge(loss, norm); });
}

Seconds LiveJob::elapsed() const { return seconds_since(begin_); }

std::int64_t LiveJob::tokens() const {
  return start_.tokens + (samples_ - start_.samples) * trainer_.options().seq_len;
}

RunOutcome LiveJob::outcome() const {
  RunOutcome outcome;
  outcome.reason = reason_.value_or(EndReason::kFailed);
  outcome.error = error_;
  outcome.steps = steps_;
  outcome.samples = samples_;
  outcome.loss = loss_;
  outcome.held_out_loss = held_out_loss_;
  outcome.seconds = trained_.value_or(elapsed());
  outcome.moves = moves_;
  outcome.pause = pause_;
  outcome.saved = checkpoints_.on_disk(steps_);
  return outcome;
}

// A run that was over when it was saved is over again, unless its limits have changed.
Result<void> LiveJob::begin() {
  introduce(log_, options_, start_, data_);
  // A loss on other data does not count for --until-loss.
  const bool known_loss = options_.eval_every == 0 && !options_.checkpoint.other_data;
  loss_begins_anew_ = options_.checkpoint.other_data;
  const double reached = known_loss ? start_.loss.value_or(INFINITY) : INFINITY;
  reason_ = reached_limit(options_, {steps_, samples_, reached});
  // Evaluates again, because the last evaluation before the checkpoint may have been given up, or
  // its loss may have ended the run.
  const bool evaluates =
      options_.eval_every > 0 && (done() || (options_.until_loss && start_.step > 0));
  // With a step set, the run ends in order on a signal. Without one, it would end at once, as
  // before its first step.
  if (done() || evaluates) trainer_.mesh().world->activity().set_step(steps_);
  COPUS_TRY_VOID(log_.write(begin_event(options_, start_, data_)));
  if (reason_ == EndReason::kSteps || reason_ == EndReason::kSamples) {
    log_.say(fmt::format(
        "nothing to train: the run has reached --{} {}; give a larger one to go on",
        to_string(*reason_), reason_ == EndReason::kSteps ? *options_.steps : *options_.samples));
  }
  if (evaluates) {
    COPUS_TRY(const bool evaluated, evaluate());
    if (!evaluated) reason_ = EndReason::kSignal;
    if (options_.until_loss && held_out_loss_.value_or(INFINITY) <= *options_.until_loss) {
      reason_ = EndReason::kLoss;
    }
  }
  if (reason_ == EndReason::kLoss) {
    log_.say(fmt::format(
        "nothing to train: the run has reached --until-loss {}; give a smaller one to go on",
        *options_.until_loss));
  }
  if (!done()) checkpoints_.prepare(trainer_);
  begin_ = last_ = Clock::now();
  return {};
}

Result<StepReport> LiveJob::step() {
  late_ = leads_ && options_.for_time && elapsed() >= *options_.for_time;
  trainer_.mesh().world->activity().set_step(steps_ + 1);
  COPUS_TRY(result_, trainer_.step(data_, samples_, late_ || stop_asked_.load()));
  const auto finished = Clock::now();
  StepReport report;
  report.time = to_seconds(finished - last_);
  last_ = finished;
  late_step_ = late_step_.v == 0 ? report.time : 0.9 * late_step_ + 0.1 * report.time;
  if (result_.is_bad()) {
    COPUS_TRY_VOID(handle_bad_step());
  } else {
    ++steps_;
    samples_ += trainer_.options().global_batch;
    data_hash_ = add_hashes(data_hash_, result_.data_hash);
    loss_ = report.loss = result_.loss;
    report.loss_begins_anew = std::exchange(loss_begins_anew_, false);
    const LrSchedule& rates = trainer_.options().lr;
    if (rates.peak > 0) report.learning_rate = learning_rate(rates, samples_) / rates.peak;
    if (result_.norms) {
      report.norms = result_.norms->all;
      report.scale_norms = result_.norms->scales;
    }
  }
  report.step = steps_;
  report.samples = samples_;
  return report;
}

// The trainer has not changed any weight in a bad step.
Result<void> LiveJob::handle_bad_step() {
  const bool finite = result_.not_finite.empty();
  BadStepEvent event;
  event.step = steps_ + 1;
  event.samples = samples_;
  event.loss = without_sign_of_nan(result_.loss);
  event.grad_norm = without_sign_of_nan(result_.grad_norm);
  event.why = finite ? result_.spike : result_.not_finite;
  const Result<OnBadStep> action = bad_steps_.act(describe(event));
  event.action = action ? *action : OnBadStep::kStop;
  if (event.action == OnBadStep::kStop) {
    loss_ = result_.loss;
    reason_ = finite ? EndReason::kSpike : EndReason::kNotFinite;
    error_ = action ? describe(event) : action.error().message;
    return log_.write(event);
  }
  // Skips the step's samples: the run does not train on them and does not read them again.
  ++steps_;
  samples_ += trainer_.options().global_batch;
  data_hash_ = add_hashes(data_hash_, result_.data_hash);
  event.samples = samples_;
  if (event.action == OnBadStep::kRollback) {
    COPUS_TRY(event.from, roll_back());
  }
  return log_.write(event);
}

// Loads the checkpoint's weights into the current layout. The counts of steps and samples stay: the
// samples between the checkpoint and this step are not read again, as in PaLM's training (Chowdhery
// et al. 2022, section 5.1).
Result<std::string> LiveJob::roll_back() {
  {
    const Activity::Scope saves(trainer_.mesh().world->activity(), Doing::kSaving);
    COPUS_TRY_VOID(checkpoints_.wait());
  }
  RunOptions here = options_;
  here.trainer = trainer_.options();
  here.adapt.controller.policy.adapt = Adapt::kOff;
  here.adapt.choose_plan = false;
  here.checkpoint.plan_given = here.checkpoint.batch_given = true;
  // Frees the state first, because two trainers may not fit in memory. Without a checkpoint the run
  // is over anyway.
  trainer_.free_state();
  COPUS_TRY(const RunStart back,
            resume_run(groups_, here, data_, [&](const std::string& text) { log_.say(text); }));
  if (back.from.empty()) return make_error("{}: no checkpoint to go back to", options_.run_dir);
  trainer_ = std::move(*back.trainer);
  trainer_.set_judge([this](double loss, double norm) { return bad_steps_.judge(loss, norm); });
  loss_begins_anew_ = true;
  checkpoints_.ask();  // so that a restarted run skips the same samples
  last_ = Clock::now();
  return back.from;
}

Result<void> LiveJob::observed(const StepReport& step) {
  if (done()) return save_what_is_left();
  if (leads_) {
    if (!result_.is_bad()) COPUS_TRY_VOID(log_.write(step_event(step)));
    COPUS_TRY_VOID(say_what_is_learned());
    if (const std::optional<Decision>& later = controller_->later()) {
      const bool goes_on_there = later->move && controller_->resume_at() == later->to;
      COPUS_TRY_VOID(log_.write(
          decision_event(*later, goes_on_there ? DecisionAction::kLater : DecisionAction::kKeep)));
    }
  }
  return conclude();
}

// Writes what is believed of the critical batch if the median or an end of the interval has changed
// by a tenth.
Result<void> LiveJob::say_what_is_learned() {
  constexpr double kVisible = 1.1;
  const std::optional<NoiseEstimate> noise = controller_->noise();
  const CalibrationBelief::Interval now = controller_->calibration();
  if (!controller_->has_learned() || !noise || !std::isfinite(noise->gns)) return {};
  const auto differ = [](double a, double b) { return a > kVisible * b || b > kVisible * a; };
  if (said_ && !differ(now.median, said_->median) && !differ(now.low, said_->low) &&
      !differ(now.high, said_->high)) {
    return {};
  }
  said_ = now;
  return log_.write(CalibrationEvent{.step = steps_,
                                     .samples = samples_,
                                     .calibration = now.median,
                                     .low = now.low,
                                     .high = now.high,
                                     .lr_aware = controller_->lr_aware(),
                                     .gns = noise->gns,
                                     .lr = result_.lr});
}

Result<void> LiveJob::conclude() {
  const std::optional<EndReason> limit = reached_limit(options_, {steps_, samples_});
  const bool asked = asked_to_stop() != Asked::kNo;
  // A run that is asked to stop may be killed soon, so it saves before it evaluates.
  if (asked) COPUS_TRY_VOID(save_what_is_left());
  const bool evaluates =
      options_.eval_every > 0 && (steps_ % options_.eval_every == 0 || limit || asked);
  bool given_up = false;
  if (evaluates) {
    COPUS_TRY(const bool evaluated, evaluate());
    given_up = !evaluated;
  }
  if (done()) return save_what_is_left();
  const double of_step = result_.is_bad() ? INFINITY : loss_.value_or(INFINITY);
  const double reached = options_.eval_every > 0 ? held_out_loss_.value_or(INFINITY) : of_step;
  reason_ = reason_to_stop(options_, {steps_, samples_, reached}, asked_to_stop(), given_up);
  if (done()) trained_ = elapsed();
  return {};
}

Asked LiveJob::asked_to_stop() const {
  if (result_.asked_to_stop == 0) return Asked::kNo;
  const bool out_of_time = leads_ ? late_ : options_.for_time.has_value();
  return out_of_time && !stop_asked_.load() ? Asked::kByItsTime : Asked::kBySignal;
}

Result<bool> LiveJob::evaluate() {
  COPUS_TRY(const std::optional<double> loss,
            trainer_.evaluate(data_, options_.eval_samples, stop_asked_));
  last_ = Clock::now();  // the evaluation does not count as time of the next step
  if (!loss) {           // given up, because a rank was asked to stop
    log_.say(fmt::format("step {}  no held-out loss: asked to stop", steps_));
    return false;
  }
  held_out_loss_ = loss;
  if (!std::isfinite(*loss)) {
    reason_ = EndReason::kNotFinite;
    error_ = fmt::format("step {}: the held-out loss is not finite; the loss of the step was {}",
                         steps_, loss_.value_or(NAN));
  }
  COPUS_TRY_VOID(log_.write(EvalEvent{.step = steps_, .samples = samples_, .loss = loss}));
  return true;
}

std::optional<Seconds> LiveJob::remaining() const {
  return time_left(options_, {steps_, samples_},
                   {.step = late_step_,
                    .global_batch = trainer_.options().global_batch,
                    .elapsed = elapsed(),
                    .out_of_time = late_});
}

Result<void> LiveJob::decided(const Decision& decision) {
  return log_.write(
      decision_event(decision, decision.move ? DecisionAction::kSwitch : DecisionAction::kKeep));
}

Result<MoveReport> LiveJob::move(const Configuration& to) {
  const Configuration from{trainer_.options().plan, trainer_.options().global_batch};
  const MoveResult result = move_run(trainer_, groups_, to);
  last_ = Clock::now();
  if (result.done) {
    late_step_ = Seconds();
    moves_ += 1;
    pause_ += result.pause;
  }
  COPUS_TRY_VOID(
      log_.write(ReconfigureEvent{.step = steps_,
                                  .from = from.plan,
                                  .to = to.plan,
                                  .global_batch_from = from.global_batch,
                                  .global_batch_to = to.global_batch,
                                  .done = result.done,
                                  .error = result.error,
                                  .pause = result.pause,
                                  .bytes_moved = Bytes(static_cast<double>(result.bytes_moved)),
                                  .bytes_read = Bytes(static_cast<double>(result.bytes_read)),
                                  .groups = result.groups,
                                  .allocate = result.allocate,
                                  .transfer = result.transfer,
                                  .commit = result.commit}));
  return MoveReport{result.done, result.error, result.pause};
}

// Saves after the decision that followed the step, so that the checkpoint contains it.
Result<void> LiveJob::settled() {
  COPUS_TRY_VOID(checkpoints_.poll());
  if (checkpoints_.due(steps_)) return save();
  return done() ? save_what_is_left() : Result<void>();
}

Result<void> LiveJob::save_what_is_left() {
  return checkpoints_.missing(steps_) ? save() : Result<void>();
}

Result<void> LiveJob::save() {
  const Activity::Scope saves(trainer_.mesh().world->activity(), Doing::kSaving);
  const TrainerOptions& t = trainer_.options();
  RunState state;
  state.data_hash = data_hash_;
  state.fingerprint = data_fingerprint(data_);
  state.tokens = tokens();
  state.base_batch = t.base_batch;
  state.lr = SavedSchedule{t.lr.peak, t.lr.floor, t.lr.warmup_samples, t.lr.decay_samples};
  state.loss = loss_;
  state.version = options_.checkpoint.version;
  if (leads_) state.controller = controller_->to_json();
  Manifest manifest = manifest_of(trainer_, steps_, samples_, run_state_to_json(state));
  if (leads_ && options_.adapt.on()) {
    manifest.plan = controller_->resume_at().plan;
    manifest.global_batch = controller_->resume_at().global_batch;
  }
  COPUS_TRY_VOID(checkpoints_.save(trainer_, std::move(manifest)));
  last_ = Clock::now();  // the save does not count as time of the next step
  return {};
}

Result<void> LiveJob::finish_saving() {
  COPUS_TRY(const std::string why, checkpoints_.finish(trainer_));
  // The progress since the last good checkpoint is lost, so the run ends with an error.
  if (!why.empty() && error_.empty()) {
    error_ = fmt::format("the last checkpoint was not saved: {}", why);
  }
  return {};
}

DecisionEvent LiveJob::decision_event(const Decision& decision, DecisionAction action) const {
  return {.step = steps_,
          .candidates = decision.candidates,
          .best_plan = decision.to.plan,
          .best_global_batch = decision.to.global_batch,
          .gain = decision.gain,
          .action = action,
          .why = decision.why,
          .reason = decision.reason};
}

// REQUIRES: leads_.
StepEvent LiveJob::step_event(const StepReport& step) const {
  const TrainerOptions& t = trainer_.options();
  const double tokens_of_step = static_cast<double>(t.global_batch * t.seq_len);
  StepEvent event;
  event.step = steps_;
  event.samples = samples_;
  event.tokens = tokens();
  event.loss = step.loss.value_or(0);
  event.grad_norm = result_.grad_norm;
  event.lr = result_.lr;
  event.global_batch = t.global_batch;
  event.plan = t.plan;
  event.step_time = step.time;
  event.tokens_per_s = tokens_of_step / step.time.v;
  if (options_.peak) {
    const Flops needed(3 * t.model.forward_flops_per_token(t.seq_len) * tokens_of_step);
    event.mfu = needed / event.step_time / *options_.peak;
  }
  if (const std::optional<NoiseEstimate> noise = controller_->noise()) {
    event.gns_low = noise->low;
    event.gns_high = noise->high;
    if (noise->gns > 0 && std::isfinite(noise->gns)) event.gns = noise->gns;
  }
  event.critical_batch = controller_->critical_batch();
  if (const std::optional<NoiseEstimate> scales = controller_->scales_noise()) {
    event.gns_scales = scales->gns;
  }
  // The two raw terms come from the norms of the step's first samples and of its whole batch. They
  // are the same at every layout with the same number of first samples. The smoothed noise scale
  // uses all norms.
  if (result_.norms) {
    const SquaredNorm pair[] = {result_.norms->first, result_.norms->global};
    if (const std::optional<NoiseTerms> raw = fit_noise(pair)) {
      event.g2 = raw->g2;
      event.s = raw->s;
    }
  }
  event.norms = entries_of(step.norms);
  event.scale_norms = entries_of(step.scale_norms);
  event.goodput = controller_->goodput();
  event.data_hash = data_hash_;
  event.tp_wait = result_.tp_wait;
  event.pp_wait = result_.pp_wait;
  event.dp_wait = result_.dp_wait;
  event.sync_wait = result_.sync_wait;
  event.optimizer = result_.optimizer;
  return event;
}

}  // namespace copus
