// LiveJob's bad steps: none of them has changed a weight; stop, leave the samples out, or go back.
#include <cmath>

#include "copus/train/run/live_job.h"

namespace copus {

void LiveJob::stop_for(const char* reason, const std::string& error) {
  outcome_.reason = reason;
  outcome_.error = error;
}

Result<void> LiveJob::handle_bad_step() {
  // The sign of what is no number says nothing.
  const double norm = std::isnan(result_.grad_norm) ? NAN : result_.grad_norm;
  const double loss = std::isnan(result_.loss) ? NAN : result_.loss;
  const bool finite = result_.not_finite.empty();
  const std::string& why = finite ? result_.spike : result_.not_finite;
  const std::string sentence =
      fmt::format("step {}: loss {}, gradient norm {}: {}; the weights are as after step {}",
                  outcome_.steps + 1, loss, norm, why, outcome_.steps);
  const Result<OnBadStep> action = bad_steps_.act(sentence);
  const bool stops = !action || *action == OnBadStep::kStop;
  std::string from;
  if (stops) {
    outcome_.loss = result_.loss;
    stop_for(finite ? "spike" : "not_finite", action ? sentence : action.error().message);
  } else {
    // They are behind us: never trained on, never met again.
    ++outcome_.steps;
    outcome_.samples += trainer_.options().global_batch;
    data_hash_ = add_hashes(data_hash_, result_.data_hash);
    if (*action == OnBadStep::kRollback) {
      COPUS_TRY(from, roll_back());
    }
    say(fmt::format("{}; {}", sentence,
                    from.empty() ? "left out" : fmt::format("left out, and back to {}", from)));
  }
  if (recorder_ == nullptr) return {};
  return recorder_->write("bad_step", {{"step", outcome_.steps + (stops ? 1 : 0)},
                                       {"samples", outcome_.samples},
                                       {"loss", number_or_null(loss)},
                                       {"grad_norm", number_or_null(norm)},
                                       {"action", stops ? "stop" : to_string(*action)},
                                       {"from", from.empty() ? Json(nullptr) : Json(from)},
                                       {"why", why}});
}

// The checkpoint's weights at the layout of now. Steps and samples go on counting: those between
// the checkpoint and here are not read again, as PaLM did it (Chowdhery et al. 2022, section 5.1).
Result<std::string> LiveJob::roll_back() {
  if (saver_) {
    const Activity::Scope saves(trainer_.mesh().world->activity(), Doing::kSaving);
    if (const std::optional<SaveOutcome> saved = saver_->saver().wait()) {
      COPUS_TRY_VOID(record_save(*saved));
    }
  }
  RunOptions here = o_;
  here.trainer = trainer_.options();
  here.adapt.controller.policy.adapt = Adapt::kOff;
  here.adapt.choose_plan = false;
  here.checkpoint.plan_given = here.checkpoint.batch_given = true;
  // Two of them may not fit; and without a checkpoint the run is over anyway.
  trainer_.free_state();
  COPUS_TRY(const RunStart back,
            resume_run(groups_, here, data_, [&](const std::string& text) { say(text); }));
  if (back.from.empty()) return make_error("{}: no checkpoint to go back to", o_.run_dir);
  trainer_ = std::move(*back.trainer);
  trainer_.set_judge([this](double loss, double norm) { return bad_steps_.judge(loss, norm); });
  save_now_ = true;  // that the samples are left out must not be lost with this process
  last_ = Clock::now();
  return back.from;
}

}  // namespace copus
