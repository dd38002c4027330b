#include "copus/train/record/phases.h"

#include <fmt/format.h>

#include <utility>

#include "copus/base/text.h"

namespace copus {

Phases::Phases(std::string plan, std::int64_t batch, std::int64_t steps) : steps_(steps) {
  phases_.push_back(
      {.plan = std::move(plan), .batch = batch, .first_step = steps + 1, .reason = "start"});
}

Result<void> Phases::take(const TimedEvent& event) {
  if (const auto* step = std::get_if<StepEvent>(&event.event)) add(*step);
  if (const auto* decision = std::get_if<DecisionEvent>(&event.event)) reason_ = decision->reason;
  if (const auto* moved = std::get_if<ReconfigureEvent>(&event.event); moved && moved->done) {
    move(*moved);
  }
  return {};
}

void Phases::add(const StepEvent& step) {
  ++steps_;
  Phase& phase = phases_.back();
  const double seconds = step.step_time.v;
  ++phase.steps;
  phase.time += step.step_time;
  phase.loss = step.loss;
  if (!step.critical_batch) return;
  critical_batch_ = step.critical_batch;
  const auto batch = static_cast<double>(step.global_batch);
  const auto start = static_cast<double>(phases_.front().batch);
  progress_ += seconds * goodput(GoodputKind::kPlain, batch / seconds, batch, *critical_batch_);
  stayed_ += seconds * goodput(GoodputKind::kPlain, 1, start, *critical_batch_);
}

void Phases::move(const ReconfigureEvent& move) {
  if (critical_batch_) {
    const auto start = static_cast<double>(phases_.front().batch);
    stayed_ += move.pause.v * goodput(GoodputKind::kPlain, 1, start, *critical_batch_);
  }
  phases_.push_back({.plan = short_name(move.to),
                     .batch = move.global_batch_to,
                     .first_step = steps_ + 1,
                     .reason = reason_,
                     .pause = move.pause});
}

Seconds Phases::pause() const {
  Seconds sum;
  for (const Phase& phase : phases_) sum += phase.pause;
  return sum;
}

std::optional<double> Phases::gain(Seconds start_step) const {
  if (stayed_ <= 0 || start_step <= Seconds()) return std::nullopt;
  return progress_ / (stayed_ * static_cast<double>(phases_.front().batch) / start_step.v);
}

std::string Phases::table() const {
  std::vector<std::vector<std::string>> rows;
  for (const Phase& phase : phases_) {
    const double samples = static_cast<double>(phase.steps * phase.batch);
    rows.push_back({fmt::format("{}", phase.first_step), phase.plan, fmt::format("{}", phase.batch),
                    fmt::format("{}", phase.steps),
                    phase.steps > 0 ? fmt::format("{:.1f}", samples / phase.time.v) : "-",
                    phase.steps > 0 ? fmt::format("{:.4f}", phase.loss) : "-",
                    &phase == &phases_.front() ? "-" : human_seconds(phase.pause), phase.reason});
  }
  return format_table(
      {"from step", "<layout", "batch", "steps", "samples/s", "loss", "pause", "<why"}, rows);
}

}  // namespace copus
