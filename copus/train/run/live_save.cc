// LiveJob's checkpoints: when the run waits for them, what is kept beside, what is written down.
#include "copus/base/checksum.h"
#include "copus/base/text.h"
#include "copus/base/to_stderr.h"
#include "copus/train/comm/agree.h"
#include "copus/train/run/live_job.h"

namespace copus {

Result<void> LiveJob::save(const Controller* controller) {
  const Activity::Scope saves(trainer_.mesh().world->activity(), Doing::kSaving);
  const auto begin = Clock::now();
  double waited = 0;
  if (const std::optional<SaveOutcome> saved = saver_->saver().wait()) {
    waited = std::chrono::duration<double>(Clock::now() - begin).count();
    say(fmt::format("step {}  waited {} for the checkpoint of step {}", outcome_.steps,
                    human_seconds(waited), saved->step));
    COPUS_TRY_VOID(record_save(*saved));
  }
  // A rank whose disk is slow is waited for here, and not in the next step, where it would be given
  // up sooner.
  trainer_.mesh().world->meet(begin);
  waited_s_ = waited;
  saved_step_ = outcome_.steps;
  const TrainerOptions& t = trainer_.options();
  Json run = {{"data_hash", checksum_text(data_hash_)},
              {"fingerprint", checksum_text(data_fingerprint(data_))},
              {"tokens", tokens()},
              {"base_batch", t.base_batch},
              {"lr",
               {{"peak", t.lr.peak},
                {"floor", t.lr.floor},
                {"warmup_samples", t.lr.warmup_samples},
                {"decay_samples", t.lr.decay_samples}}},
              {"loss", number_or_null(outcome_.loss)},
              {"version", o_.checkpoint.version}};
  if (controller != nullptr) run["controller"] = controller->to_json();
  Manifest manifest = manifest_of(trainer_, outcome_.steps, outcome_.samples, std::move(run));
  if (controller != nullptr && o_.adapt.on()) {
    manifest.plan = controller->resume_at().plan;
    manifest.global_batch = controller->resume_at().global_batch;
  }
  saver_->save(trainer_, std::move(manifest));
  last_ = Clock::now();  // no part of the next step's time
  return {};
}

Result<void> LiveJob::save_what_is_left(const Controller* controller) {
  if (!saver_ || outcome_.steps == saved_step_) return {};
  return save(controller);
}

Result<void> LiveJob::record_save(const SaveOutcome& saved) {
  outcome_.saved = saved.error.empty() && saved.step == outcome_.steps;
  if (!saved.error.empty()) {
    const std::string text =
        fmt::format("CHECKPOINT OF STEP {} NOT SAVED: {}", saved.step, saved.error);
    if (recorder_ != nullptr) say(text);
    if (recorder_ == nullptr) to_stderr(text + "\n");
  }
  if (!saved.warning.empty()) say(fmt::format("step {}  {}", saved.step, saved.warning));
  if (recorder_ == nullptr) return {};
  return recorder_->write("checkpoint",
                          {{"step", saved.step},
                           {"samples", saved.samples},
                           {"path", saved.error.empty() ? Json(saved.folder) : Json(nullptr)},
                           {"error", saved.error.empty() ? Json(nullptr) : Json(saved.error)},
                           {"bytes", saved.bytes},
                           {"copy_s", waited_s_ + saver_->held_up().v},
                           {"write_s", saved.write.v}});
}

Result<void> LiveJob::finish_saving() {
  if (!saver_) return {};
  const Activity::Scope saves(trainer_.mesh().world->activity(), Doing::kSaving);
  const auto begin = Clock::now();
  std::string trouble;
  if (const std::optional<SaveOutcome> saved = saver_->saver().wait()) {
    COPUS_TRY_VOID(record_save(*saved));
    if (!saved->error.empty()) {
      trouble = fmt::format("rank {}: {}", trainer_.mesh().rank, saved->error);
    }
  }
  trainer_.mesh().world->meet(begin);
  // All are through with writing, and know what became of it.
  const std::string why = first_said(*trainer_.mesh().world, trainer_.options().device, trouble);
  if (recorder_ != nullptr) {
    if (const Result<void> cleaned = clean_leftovers(o_.run_dir); !cleaned) {
      say(cleaned.error().message);
    }
  }
  if (why.empty()) return {};
  outcome_.saved = false;
  // What the run has reached is lost: whoever waits for it must know.
  if (outcome_.error.empty()) {
    outcome_.error = fmt::format("the last checkpoint was not saved: {}", why);
  }
  return {};
}

}  // namespace copus
