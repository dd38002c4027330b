#include "copus/train/run/checkpoints.h"

#include <chrono>
#include <utility>

#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/base/to_stderr.h"
#include "copus/train/comm/agree.h"

namespace copus {

using Clock = std::chrono::steady_clock;

Checkpoints::Checkpoints(const RunOptions& options, const Trainer& trainer, const RunLog& log,
                         std::int64_t step, bool on_disk)
    : options_(options), log_(log), rank_(trainer.mesh().rank), begun_step_(step) {
  if (on_disk) saved_step_ = step;
  if (!options.checkpoint.save) return;
  SaverOptions saver;
  saver.run_dir = options.run_dir;
  saver.rank = rank_;
  saver.ranks = trainer.mesh().world->size();
  saver.wait = options.checkpoint.wait;
  saver.retention = options.checkpoint.retention;
  saver_.emplace(std::move(saver));
}

void Checkpoints::prepare(const Trainer& trainer) {
  if (saver_ && options_.checkpoint.every > 0) saver_->prepare(trainer);
}

bool Checkpoints::due(std::int64_t step) const {
  if (!saver_) return false;
  const std::int64_t every = options_.checkpoint.every;
  return asked_ || (every > 0 && step % every == 0 && missing(step));
}

Result<void> Checkpoints::save(Trainer& trainer, Manifest manifest) {
  const Activity::Scope saves(trainer.mesh().world->activity(), Doing::kSaving);
  const auto begin = Clock::now();
  Seconds waited;
  if (const std::optional<SaveOutcome> before = saver_->wait()) {
    waited = seconds_since(begin);
    log_.say(fmt::format("step {}  waited {} for the checkpoint of step {}", manifest.step,
                         human_seconds(waited), before->step));
    COPUS_TRY_VOID(record(*before));
  }
  // All ranks wait here for a rank whose disk is slow. In the next step the time limit is shorter.
  trainer.mesh().world->meet(begin);
  waited_ = waited;
  asked_ = false;
  begun_step_ = manifest.step;
  saver_->save(trainer, std::move(manifest));
  return {};
}

Result<void> Checkpoints::poll() {
  if (!saver_) return {};
  const std::optional<SaveOutcome> saved = saver_->poll();
  return saved ? record(*saved) : Result<void>();
}

Result<void> Checkpoints::wait() {
  if (!saver_) return {};
  const std::optional<SaveOutcome> saved = saver_->wait();
  return saved ? record(*saved) : Result<void>();
}

Result<std::string> Checkpoints::finish(const Trainer& trainer) {
  if (!saver_) return std::string();
  const Comm& world = *trainer.mesh().world;
  const Activity::Scope saves(world.activity(), Doing::kSaving);
  const auto begin = Clock::now();
  std::string trouble;
  if (const std::optional<SaveOutcome> saved = saver_->wait()) {
    COPUS_TRY_VOID(record(*saved));
    trouble = saved->error;
  }
  world.meet(begin);
  // Now every rank has ended its writing and knows the outcome.
  const std::string why = first_trouble(world, trainer.options().device, trouble);
  if (!why.empty()) saved_step_.reset();
  if (rank_ == 0) {
    if (const Result<void> cleaned = clean_leftovers(options_.run_dir); !cleaned) {
      log_.say(cleaned.error().message);
    }
  }
  return why;
}

Result<void> Checkpoints::record(const SaveOutcome& saved) {
  if (saved.error.empty()) saved_step_ = saved.step;
  if (!saved.warning.empty()) log_.say(fmt::format("step {}  {}", saved.step, saved.warning));
  const CheckpointEvent event{.step = saved.step,
                              .samples = saved.samples,
                              .path = saved.error.empty() ? saved.folder : "",
                              .error = saved.error,
                              .bytes = Bytes(static_cast<double>(saved.bytes)),
                              .copy = waited_ + saver_->held_up(),
                              .write = saved.write};
  // Other ranks have no event stream, so they print why their shard was not written.
  if (rank_ != 0 && !saved.error.empty()) to_stderr(message_of(event) + "\n");
  return log_.write(event);
}

}  // namespace copus
