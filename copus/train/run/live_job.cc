#include "copus/train/run/live_job.h"

#include <algorithm>
#include <cmath>

#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/train/comm/agree.h"

namespace copus {
namespace {

// [[samples, mean squared norm, how many], …]; null: none were taken.
Json norms_to_json(const std::vector<SquaredNorm>& norms) {
  if (norms.empty()) return nullptr;
  Json all = Json::array();
  for (const SquaredNorm& norm : norms) all.push_back({norm.batch, norm.value, norm.count});
  return all;
}

}  // namespace

LiveJob::LiveJob(GroupCache& groups, const RunOptions& options, const Dataset& data,
                 RunStart& start, Recorder* recorder, Progress* progress,
                 const std::atomic<bool>& stop_asked)
    : groups_(groups),
      o_(options),
      data_(data),
      start_(start),
      trainer_(*start.trainer),
      recorder_(recorder),
      progress_(progress),
      stop_asked_(stop_asked),
      phases_(short_name(trainer_.options().plan), trainer_.options().global_batch,
              options.adapt.controller.policy.kind, start.step),
      bad_steps_(options.bad_steps),
      data_hash_(start.data_hash) {
  outcome_.steps = start.step;
  outcome_.samples = start.samples;
  outcome_.loss = start.loss.value_or(0);
  saved_step_ = start.step;
  trainer_.set_judge([this](double loss, double norm) { return bad_steps_.judge(loss, norm); });
  if (!options.checkpoint.save) return;
  SaverOptions saver;
  saver.run_dir = options.run_dir;
  saver.rank = trainer_.mesh().rank;
  saver.ranks = trainer_.mesh().world->size();
  saver.wait = options.checkpoint.wait;
  saver.retention = options.checkpoint.retention;
  saver_.emplace(std::move(saver));
}

Configuration LiveJob::now() const {
  return {trainer_.options().plan, trainer_.options().global_batch};
}

double LiveJob::elapsed_s() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void LiveJob::say(const std::string& text) const {
  if (progress_ != nullptr) progress_->say(text);
}

std::int64_t LiveJob::tokens() const {
  return start_.tokens + (outcome_.samples - start_.samples) * trainer_.options().seq_len;
}

double LiveJob::trained_s() const { return trained_s_.value_or(elapsed_s()); }

Result<void> LiveJob::begin() {
  const std::optional<Adaptation>& adaptation = start_.adaptation;
  const TrainerOptions& t = trainer_.options();
  say(fmt::format("{} ({} parameters), {} rank{}, {}, {} tokens of data", t.model.name,
                  human_count(static_cast<double>(t.model.total_params())), t.plan.gpus(),
                  t.plan.gpus() == 1 ? "" : "s", short_name(t.plan),
                  human_count(static_cast<double>(data_.tokens()))));
  if (t.model.dropout || t.model.attention_dropout > 0)
    say("the model's config asks for dropout: it is not applied");
  if (t.seq_len > t.model.max_positions) {
    say(fmt::format("sequences of {} are longer than the {} positions of the model's config",
                    t.seq_len, t.model.max_positions));
  }
  if (adaptation) {
    say(fmt::format(
        "adapting {}: {} configurations, batches {} to {}",
        o_.adapt.controller.policy.adapt == Adapt::kFull ? "batch and layout" : "the batch",
        adaptation->candidates.size(), o_.adapt.lowest_batch, o_.adapt.highest_batch));
  }
  if (!start_.from.empty()) {
    say(fmt::format("going on from {}: step {}, {} samples", start_.from, start_.step,
                    start_.samples));
  }
  // A run that was over stays so.
  if (o_.steps && outcome_.steps >= *o_.steps) outcome_.reason = "steps";
  if (o_.samples && outcome_.samples >= *o_.samples) outcome_.reason = "samples";
  const bool same_data = !o_.checkpoint.other_data;  // another's loss says nothing of these
  if (o_.until_loss && o_.eval_every == 0 && same_data &&
      start_.loss.value_or(INFINITY) <= *o_.until_loss) {
    outcome_.reason = "loss";
  }
  // The last evaluation may have been given up, or may have been what ended the run.
  const bool evaluates = o_.eval_every > 0 && (done() || (o_.until_loss && start_.step > 0));
  // What is saved is no reason to end at once when a signal asks for an end.
  if (done() || evaluates) trainer_.mesh().world->activity().set_step(outcome_.steps);
  COPUS_TRY_VOID(record_begin());
  if (outcome_.reason == "steps" || outcome_.reason == "samples") {
    say(fmt::format("nothing to train: its --{} {} is reached; give it a larger one to go on",
                    outcome_.reason, outcome_.reason == "steps" ? *o_.steps : *o_.samples));
  }
  if (evaluates) {
    COPUS_TRY(const bool evaluated, evaluate());
    const double reached = outcome_.held_out_loss.value_or(INFINITY);
    if (!evaluated) outcome_.reason = "signal";
    if (o_.until_loss && reached <= *o_.until_loss) outcome_.reason = "loss";
  }
  if (outcome_.reason == "loss") {
    say(fmt::format("--until-loss {} is reached: give it a smaller one to go on", *o_.until_loss));
  }
  outcome_.saved = done() && !start_.from.empty();
  if (saver_ && o_.checkpoint.every > 0 && !done()) saver_->prepare(trainer_);
  begin_ = last_ = Clock::now();
  return {};
}

Result<void> LiveJob::record_begin() const {
  if (recorder_ == nullptr) return {};
  const TrainerOptions& t = trainer_.options();
  if (start_.resumed) {
    return recorder_->write(
        "restart", {{"step", start_.step},
                    {"samples", start_.samples},
                    {"from", start_.from.empty() ? Json(nullptr) : Json(start_.from)},
                    {"plan", plan_to_json(t.plan)},
                    {"global_batch", t.global_batch},
                    {"ranks", t.plan.gpus()},
                    {"why", o_.checkpoint.why},
                    {"skipped", start_.skipped.empty() ? Json(nullptr) : Json(start_.skipped)}});
  }
  return recorder_->write(
      "start", {{"model", t.model.name},
                {"parameters", t.model.total_params()},
                {"plan", plan_to_json(t.plan)},
                {"ranks", t.plan.gpus()},
                {"device", t.device.is_cuda() ? "cuda" : "cpu"},
                {"precision", t.compute == Compute::kBf16 ? "bf16" : "fp32"},
                {"seq_len", t.seq_len},
                {"global_batch", t.global_batch},
                {"data_tokens", data_.tokens()},
                {"peak_flops", o_.peak ? Json(o_.peak->v) : Json(nullptr)},
                {"adapt", to_string(o_.adapt.controller.policy.adapt)},
                {"cluster", start_.cluster ? cluster_to_json(*start_.cluster) : Json(nullptr)}});
}

Result<StepReport> LiveJob::step() {
  // Rank 0's clock is the run's: it can tell its time limit from another rank's signal.
  late_ = recorder_ != nullptr && o_.for_time && elapsed_s() >= o_.for_time->v;
  trainer_.mesh().world->activity().set_step(outcome_.steps + 1);
  COPUS_TRY(result_, trainer_.step(data_, outcome_.samples, late_ || stop_asked_.load()));
  const auto finished = Clock::now();
  StepReport report;
  report.time = to_seconds(finished - last_);
  last_ = finished;
  late_step_s_ = late_step_s_ == 0 ? report.time.v : 0.9 * late_step_s_ + 0.1 * report.time.v;
  if (result_.is_bad()) {
    COPUS_TRY_VOID(handle_bad_step());
    report.step = outcome_.steps;
    report.samples = outcome_.samples;
    return report;
  }
  ++outcome_.steps;
  outcome_.samples += trainer_.options().global_batch;
  outcome_.loss = result_.loss;
  data_hash_ = add_hashes(data_hash_, result_.data_hash);
  report.step = outcome_.steps;
  report.samples = outcome_.samples;
  report.loss = result_.loss;
  if (result_.norms) {
    report.norms = result_.norms->all;
    report.scale_norms = result_.norms->scales;
  }
  return report;
}

Result<void> LiveJob::follow() {
  while (!done()) {
    COPUS_TRY(const StepReport report, step());
    if (done()) return save_what_is_left(nullptr);
    COPUS_TRY_VOID(conclude(nullptr));
    const bool decides = o_.adapt.on() && Controller::due(o_.adapt.controller, report.step);
    if (decides && !done()) COPUS_TRY_VOID(do_as_decided());
    COPUS_TRY_VOID(settle(nullptr));
  }
  return {};
}

Result<void> LiveJob::do_as_decided() {
  const std::string command = from_rank_0(*trainer_.mesh().world, trainer_.options().device, "");
  if (command.empty()) return {};
  const Json json = Json::parse(command);
  COPUS_TRY(const PartialPlan plan, plan_from_json(json.at("plan"), "rank 0's decision"));
  COPUS_TRY_VOID(move({plan.plan, json.at("global_batch").get<std::int64_t>()}));
  return {};
}

Result<void> LiveJob::observed(const StepReport& step, const std::optional<NoiseTerms>& /*terms*/,
                               const Controller& controller) {
  if (done()) return save_what_is_left(&controller);
  if (!result_.is_bad()) COPUS_TRY_VOID(record_step(step, controller));
  if (const std::optional<Decision>& later = controller.later()) {
    const bool goes_on_there = later->move && controller.resume_at() == later->to;
    COPUS_TRY_VOID(record_decision(*later, goes_on_there ? "later" : "keep"));
  }
  return conclude(&controller);
}

Result<bool> LiveJob::evaluate() {
  COPUS_TRY(const std::optional<double> loss,
            trainer_.evaluate(data_, o_.eval_samples, stop_asked_));
  last_ = Clock::now();  // evaluation is no part of the next step's time
  if (!loss) {           // who asks a run to stop does not wait for it
    say(fmt::format("step {}  no held-out loss: asked to stop", outcome_.steps));
    return false;
  }
  outcome_.held_out_loss = loss;
  if (recorder_ != nullptr) {
    COPUS_TRY_VOID(recorder_->write("eval", {{"step", outcome_.steps},
                                             {"samples", outcome_.samples},
                                             {"loss", number_or_null(outcome_.held_out_loss)}}));
  }
  if (!std::isfinite(*outcome_.held_out_loss)) {
    stop_for("not_finite",
             fmt::format("step {}: the held-out loss is not finite; the loss of the step was {}",
                         outcome_.steps, outcome_.loss));
  }
  say(fmt::format("step {}  held-out loss {:.4f}", outcome_.steps, *outcome_.held_out_loss));
  return true;
}

Result<void> LiveJob::conclude(const Controller* controller) {
  const bool last_step = o_.steps && outcome_.steps >= *o_.steps;
  const bool last_sample = o_.samples && outcome_.samples >= *o_.samples;
  const bool stopping = last_step || last_sample || result_.asked_to_stop > 0;
  const bool evaluates = o_.eval_every > 0 && (outcome_.steps % o_.eval_every == 0 || stopping);
  // Who asks a run to stop may not wait long: what it has reached comes first.
  if (result_.asked_to_stop > 0) COPUS_TRY_VOID(save_what_is_left(controller));
  bool given_up = false;
  if (evaluates) {
    COPUS_TRY(const bool evaluated, evaluate());
    given_up = !evaluated;
  }
  if (done()) return save_what_is_left(controller);
  const double of_step = result_.is_bad() ? INFINITY : outcome_.loss;
  const double reached = o_.eval_every > 0 ? outcome_.held_out_loss.value_or(INFINITY) : of_step;
  if (given_up) {
    outcome_.reason = "signal";
  } else if (o_.until_loss && reached <= *o_.until_loss) {
    outcome_.reason = "loss";
  } else if (last_step) {
    outcome_.reason = "steps";
  } else if (last_sample) {
    outcome_.reason = "samples";
  } else if (result_.asked_to_stop > 0) {
    const bool out_of_time = recorder_ != nullptr ? late_ : o_.for_time.has_value();
    outcome_.reason = out_of_time && !stop_asked_.load() ? "time" : "signal";
  }
  if (done()) trained_s_ = elapsed_s();
  return {};
}

Result<void> LiveJob::settle(const Controller* controller) {
  if (!saver_) return {};
  if (const std::optional<SaveOutcome> saved = saver_->saver().poll()) {
    COPUS_TRY_VOID(record_save(*saved));
  }
  const std::int64_t every = o_.checkpoint.every;
  const bool due = every > 0 && outcome_.steps % every == 0 && outcome_.steps != saved_step_;
  const bool now = std::exchange(save_now_, false);
  if (due || now) return save(controller);
  return done() ? save_what_is_left(controller) : Result<void>();
}

// Time left by whichever limit comes first, at the speed of late.
std::optional<Seconds> LiveJob::remaining() const {
  std::optional<Seconds> left;
  const auto limit = [&](double seconds) {
    left = min(left.value_or(Seconds(seconds)), Seconds(std::max(0.0, seconds)));
  };
  if (o_.steps) limit(late_step_s_ * static_cast<double>(*o_.steps - outcome_.steps));
  if (o_.samples) {
    limit(late_step_s_ * static_cast<double>(*o_.samples - outcome_.samples) /
          static_cast<double>(trainer_.options().global_batch));
  }
  // Who goes on after this time has another.
  if (o_.for_time && !late_) limit(o_.for_time->v - elapsed_s());
  return left;
}

Result<void> LiveJob::record_step(const StepReport& step, const Controller& controller) {
  const TrainerOptions& t = trainer_.options();
  const std::string plan = short_name(t.plan);
  const double of_step = static_cast<double>(t.global_batch * t.seq_len);
  std::optional<double> mfu;
  if (o_.peak) {
    mfu = 3 * t.model.forward_flops_per_token(t.seq_len) * of_step / step.time.v / o_.peak->v;
  }
  const std::optional<NoiseEstimate> noise = controller.noise();
  const std::optional<NoiseEstimate> scales = controller.scales_noise();
  std::optional<double> gns, critical_batch;
  if (noise && noise->gns > 0 && std::isfinite(noise->gns)) {
    gns = noise->gns;
    critical_batch = o_.adapt.controller.policy.calibration * noise->gns;
  }
  phases_.add({.batch = t.global_batch,
               .seconds = step.time.v,
               .loss = step.loss,
               .critical_batch = critical_batch});
  if (progress_ != nullptr) {
    const std::optional<Seconds> left = remaining();
    progress_->step({.step = outcome_.steps,
                     .last_step = o_.steps,
                     .loss = step.loss,
                     .tokens_per_s = of_step / step.time.v,
                     .mfu = mfu,
                     .global_batch = t.global_batch,
                     .plan = plan,
                     .noise_scale = gns,
                     .remaining_s = left ? std::optional(left->v) : std::nullopt});
  }
  if (recorder_ == nullptr) return {};
  // The two raw terms come from the step's first samples and its whole batch: the same at every
  // layout with as many first samples; the smoothed scale rests on all the norms.
  std::optional<NoiseTerms> raw;
  if (result_.norms) {
    const SquaredNorm pair[] = {result_.norms->first, result_.norms->global};
    raw = fit_noise(pair);
  }
  return recorder_->write("step",
                          {{"step", outcome_.steps},
                           {"samples", outcome_.samples},
                           {"tokens", tokens()},
                           {"loss", step.loss},
                           {"grad_norm", result_.grad_norm},
                           {"lr", result_.lr},
                           {"global_batch", t.global_batch},
                           {"plan", plan},
                           {"step_time_s", step.time.v},
                           {"tokens_per_s", of_step / step.time.v},
                           {"mfu", number_or_null(mfu)},
                           {"gns", number_or_null(gns)},
                           {"gns_low", noise ? number_or_null(noise->low) : Json(nullptr)},
                           {"gns_high", noise ? number_or_null(noise->high) : Json(nullptr)},
                           {"g2", raw ? number_or_null(raw->g2) : Json(nullptr)},
                           {"s", raw ? number_or_null(raw->s) : Json(nullptr)},
                           {"gns_scales", scales ? number_or_null(scales->gns) : Json(nullptr)},
                           {"norms", norms_to_json(step.norms)},
                           {"scale_norms", norms_to_json(step.scale_norms)},
                           {"bcrit", number_or_null(critical_batch)},
                           {"goodput", number_or_null(controller.goodput())},
                           {"data_hash", fmt::format("{:016x}", data_hash_)},
                           {"tp_wait_s", result_.tp_wait.v},
                           {"pp_wait_s", result_.pp_wait.v},
                           {"dp_wait_s", result_.dp_wait.v},
                           {"sync_wait_s", result_.sync_wait.v},
                           {"optimizer_s", result_.optimizer.v}});
}

Result<void> LiveJob::decided(const Decision& decision) {
  std::string command;
  if (decision.move) {
    command =
        Json({{"plan", plan_to_json(decision.to.plan)}, {"global_batch", decision.to.global_batch}})
            .dump();
  }
  from_rank_0(*trainer_.mesh().world, trainer_.options().device, command);
  why_ = decision.why;
  if (decision.move) say(fmt::format("step {}  {}", outcome_.steps, decision.why));
  return record_decision(decision, decision.move ? "switch" : "keep");
}

Result<void> LiveJob::record_decision(const Decision& decision, const char* action) const {
  if (recorder_ == nullptr) return {};
  return recorder_->write(
      "decision",
      {{"step", outcome_.steps},
       {"candidates", decision.candidates},
       {"best",
        {{"plan", short_name(decision.to.plan)}, {"global_batch", decision.to.global_batch}}},
       {"gain", decision.gain},
       {"action", action},
       {"why", decision.why}});
}

Result<MoveReport> LiveJob::move(const Configuration& to) {
  const Configuration from = now();
  const MoveResult result = move_run(trainer_, groups_, to);
  last_ = Clock::now();
  const std::string plan = short_name(to.plan);
  if (result.done) {
    late_step_s_ = 0;
    // The table has the configuration in columns of its own.
    const std::string name = to_text(to) + ": ";
    const std::size_t at = why_.find(name);
    if (at != std::string::npos) why_.erase(at, name.size());
    phases_.move(plan, to.global_batch, why_, result.pause.v);
    outcome_.moves += 1;
    outcome_.pause_s += result.pause.v;
  } else {
    say(fmt::format("step {}  not moved to {}: {}; going on as before", outcome_.steps, to_text(to),
                    result.error));
  }
  if (recorder_ != nullptr) {
    COPUS_TRY_VOID(recorder_->write("reconfigure",
                                    {{"step", outcome_.steps},
                                     {"from", short_name(from.plan)},
                                     {"to", plan},
                                     {"global_batch_from", from.global_batch},
                                     {"global_batch_to", to.global_batch},
                                     {"done", result.done},
                                     {"error", result.done ? Json(nullptr) : Json(result.error)},
                                     {"pause_s", result.pause.v},
                                     {"bytes_moved", result.bytes_moved},
                                     {"bytes_read", result.bytes_read},
                                     {"groups_s", result.groups.v},
                                     {"allocate_s", result.allocate.v},
                                     {"transfer_s", result.transfer.v},
                                     {"commit_s", result.commit.v}}));
  }
  return MoveReport{result.done, result.error, result.pause};
}

std::string LiveJob::summary(const Controller& controller) const {
  if (phases_.moves() == 0) return "";
  std::string text = phases_.table();
  const StepTime start = controller.start_step_time();
  if (const std::optional<double> gain = phases_.gain(start.time.v)) {
    text += fmt::format(
        "Goodput ({}) over the run, {} of pauses in it: x{:.2f} of never having moved (by the "
        "critical "
        "batch as estimated, and {} a step at the start)\n",
        to_string(o_.adapt.controller.policy.kind), human_seconds(phases_.pause_s()), *gain,
        human_seconds(start.time.v));
  }
  return text;
}

}  // namespace copus
