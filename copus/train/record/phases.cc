#include "copus/train/record/phases.h"

#include <fmt/format.h>

#include "copus/base/text.h"
#include "copus/goodput/efficiency.h"

namespace copus {

Phases::Phases(std::string plan, std::int64_t batch) {
  phases_.push_back({.plan = std::move(plan), .batch = batch, .why = "start"});
}

void Phases::add(const PhaseStep& step) {
  ++steps_;
  Phase& phase = phases_.back();
  ++phase.steps;
  phase.seconds += step.seconds;
  phase.loss = step.loss;
  if (!step.critical_batch) return;
  const auto batch = static_cast<double>(step.batch);
  const auto start = static_cast<double>(phases_.front().batch);
  last_efficiency_ = statistical_efficiency(start, *step.critical_batch);
  known_s_ += step.seconds;
  progress_ += batch * statistical_efficiency(batch, *step.critical_batch);
  stayed_s_ += step.seconds * *last_efficiency_;
}

void Phases::move(std::string plan, std::int64_t batch, std::string why, double pause_s) {
  if (last_efficiency_) {
    known_s_ += pause_s;
    stayed_s_ += pause_s * *last_efficiency_;
  }
  phases_.push_back({.plan = std::move(plan),
                     .batch = batch,
                     .first_step = steps_ + 1,
                     .why = std::move(why),
                     .pause_s = pause_s});
}

double Phases::pause_s() const {
  double sum = 0;
  for (const Phase& phase : phases_) sum += phase.pause_s;
  return sum;
}

std::optional<double> Phases::gain(double start_step_s) const {
  if (stayed_s_ <= 0 || start_step_s <= 0) return std::nullopt;
  const double stayed = stayed_s_ * static_cast<double>(phases_.front().batch) / start_step_s;
  return progress_ / stayed;
}

std::string Phases::table() const {
  std::vector<std::vector<std::string>> rows;
  for (const Phase& phase : phases_) {
    const double samples = static_cast<double>(phase.steps * phase.batch);
    rows.push_back({fmt::format("{}", phase.first_step), phase.plan, fmt::format("{}", phase.batch),
                    fmt::format("{}", phase.steps),
                    phase.steps > 0 ? fmt::format("{:.1f}", samples / phase.seconds) : "-",
                    phase.steps > 0 ? fmt::format("{:.4f}", phase.loss) : "-",
                    phase.first_step == 1 ? "-" : human_seconds(phase.pause_s), phase.why});
  }
  return format_table({"from step", "<layout", "batch", "steps", "samples/s", "loss", "pause",
                       "<why"},
                      rows);
}

}  // namespace copus
