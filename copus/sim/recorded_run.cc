#include "copus/sim/recorded_run.h"

#include <algorithm>
#include <fstream>

namespace copus {
namespace {

constexpr double kLong = 1e12;

}  // namespace

Result<void> RecordedRun::add(const Json& event, const std::string& where) {
  FieldReader fields(event, where);
  const std::string kind = fields.text("event");
  const double t = fields.number("t", 0, kLong);
  COPUS_TRY_VOID(fields.finish());
  if (kind == "start") {
    begin_ = t;
    start_ = event;
  } else if (kind == "restart") {
    // Another process, whose clock began anew: time goes on from the last step that was seen.
    begin_ = t - seen_s_;
  } else if (kind == "step") {
    return add_step(event, where);
  } else if (kind == "reconfigure" && fields.boolean_or("done", true)) {
    ++switches_;
    COPUS_TRY(const PartialPlan from, parse_plan_text(fields.text("from"), where + ": from"));
    COPUS_TRY(const PartialPlan to, parse_plan_text(fields.text("to"), where + ": to"));
    if (!same_placement(from.plan, to.plan)) ++layout_switches_;
    pause_s_ += fields.number_or("pause_s", 0, 0, kLong);
  }
  return fields.finish();
}

Result<void> RecordedRun::add_step(const Json& event, const std::string& where) {
  FieldReader fields(event, where);
  RecordedStep step;
  step.t = fields.number("t", 0, kLong) - begin_;
  step.seconds = fields.number("step_time_s", 0, kLong);
  step.loss = fields.number("loss", -kLong, kLong);
  step.samples = fields.integer("samples", 1, std::int64_t{1} << 60);
  step.global_batch = fields.integer("global_batch", 1, 1 << 30);
  const std::string plan = fields.text("plan");
  if (fields.has("gns")) step.gns = fields.number("gns", 0, kLong);
  COPUS_TRY_VOID(fields.finish());
  COPUS_TRY(const PartialPlan parsed, parse_plan_text(plan, where + ": plan"));
  step.plan = parsed.plan;
  seen_s_ = step.t;
  if (!steps_.empty() && steps_.back().samples >= step.samples) {
    while (!steps_.empty() && steps_.back().samples >= step.samples) steps_.pop_back();
    recent_.clear();
    recent_samples_ = 0;
    recent_sum_ = 0;
    for (const RecordedStep& kept : steps_) smooth(kept);
  }
  smooth(step);
  step.smoothed = recent_sum_ / static_cast<double>(recent_samples_);
  while (crossings_.size() < losses_.size() && recent_samples_ >= window_ &&
         step.smoothed <= losses_[crossings_.size()]) {
    crossings_.push_back(
        {step.t, losses_[crossings_.size()], static_cast<double>(step.samples), pause_s_});
  }
  steps_.push_back(std::move(step));
  return {};
}

void RecordedRun::smooth(const RecordedStep& step) {
  recent_.emplace_back(step.global_batch, step.loss);
  recent_samples_ += step.global_batch;
  recent_sum_ += static_cast<double>(step.global_batch) * step.loss;
  while (recent_samples_ - recent_.front().first >= window_) {
    recent_samples_ -= recent_.front().first;
    recent_sum_ -= static_cast<double>(recent_.front().first) * recent_.front().second;
    recent_.pop_front();
  }
}

Result<void> RecordedRun::read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return make_error("{}: cannot be read; want a run's events.jsonl", path);
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (in.eof()) break;
    const std::string where = fmt::format("{}:{}", path, number);
    COPUS_TRY(const Json event, parse_json(line, where));
    COPUS_TRY_VOID(add(event, where));
  }
  if (in.bad()) return make_error("{}: reading failed; want a run's events.jsonl", path);
  return {};
}

SimOutcome RecordedRun::outcome() const {
  SimOutcome out;
  out.reached = reached();
  out.crossings = crossings_;
  out.switches = switches_;
  out.layout_switches = layout_switches_;
  out.pause_s = pause_s_;
  if (steps_.empty()) return out;
  out.seconds = steps_.back().t;
  out.steps = static_cast<std::int64_t>(steps_.size());
  out.samples = steps_.back().samples;
  const std::size_t every = std::max<std::size_t>(1, steps_.size() / 500);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const RecordedStep& step = steps_[i];
    const bool moved = i == 0 || step.plan != steps_[i - 1].plan ||
                       step.global_batch != steps_[i - 1].global_batch;
    if (moved) {
      out.phases.push_back({step.t - step.seconds, {step.plan, step.global_batch}});
    }
    if (moved || i % every == 0 || i + 1 == steps_.size()) {
      out.points.push_back({step.t, step.smoothed, static_cast<double>(step.samples), 0});
    }
  }
  return out;
}

}  // namespace copus
