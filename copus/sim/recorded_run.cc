#include "copus/sim/recorded_run.h"

#include <algorithm>
#include <cmath>

#include "copus/events/event_log.h"

namespace copus {
namespace {

constexpr double kLong = 1e12;

}  // namespace

Result<void> RecordedRun::add(const TimedEvent& event, const std::string& where) {
  const Seconds t = event.t;
  if (const auto* start = std::get_if<StartEvent>(&event.event)) {
    begin_ = t;
    start_ = *start;
  } else if (std::holds_alternative<RestartEvent>(event.event)) {
    // The new process has a new clock. Time continues from the last step before the restart.
    begin_ = t - seen_;
  } else if (const auto* step = std::get_if<StepEvent>(&event.event)) {
    return add_step(*step, event.t, where);
  } else if (const auto* move = std::get_if<ReconfigureEvent>(&event.event); move && move->done) {
    ++switches_;
    if (!same_placement(move->from, move->to)) ++layout_switches_;
    pause_ += move->pause;
  }
  return {};
}

Result<void> RecordedRun::add_step(const StepEvent& event, Seconds t, const std::string& where) {
  if (!(std::abs(event.loss) <= kLong)) {
    return error_in(where, field_error("loss", "got {}; want a number from {:g} to {:g}",
                                       event.loss, -kLong, kLong));
  }
  if (event.gns && !(*event.gns >= 0 && *event.gns <= kLong)) {
    return error_in(where,
                    field_error("gns", "got {}; want a number from 0 to {:g}", *event.gns, kLong));
  }
  if (event.samples < 1) {
    return error_in(where,
                    field_error("samples", "got {}; want an integer of 1 or more", event.samples));
  }
  RecordedStep step;
  step.t = t - begin_;
  step.time = event.step_time;
  step.loss = event.loss;
  step.samples = event.samples;
  step.global_batch = event.global_batch;
  step.plan = event.plan;
  step.gns = event.gns;
  seen_ = step.t;
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
        {step.t, losses_[crossings_.size()], static_cast<double>(step.samples), pause_});
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
  return read_events(path, [this](const TimedEvent& event, const std::string& where) {
    return add(event, where);
  });
}

SimOutcome RecordedRun::outcome() const {
  SimOutcome out;
  out.reached = reached();
  out.crossings = crossings_;
  out.switches = switches_;
  out.layout_switches = layout_switches_;
  out.pause = pause_;
  if (steps_.empty()) return out;
  out.time = steps_.back().t;
  out.steps = static_cast<std::int64_t>(steps_.size());
  out.samples = steps_.back().samples;
  const std::size_t every = std::max<std::size_t>(1, steps_.size() / 500);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const RecordedStep& step = steps_[i];
    const bool moved = i == 0 || step.plan != steps_[i - 1].plan ||
                       step.global_batch != steps_[i - 1].global_batch;
    if (moved) {
      out.phases.push_back({step.t - step.time, {step.plan, step.global_batch}});
    }
    if (moved || i % every == 0 || i + 1 == steps_.size()) {
      out.points.push_back({step.t, step.smoothed, static_cast<double>(step.samples), Seconds()});
    }
  }
  return out;
}

}  // namespace copus
