#include "copus/goodput/controller.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "copus/base/text.h"

namespace copus {
namespace {

bool contains(const std::vector<Configuration>& list, const Configuration& at) {
  return std::find(list.begin(), list.end(), at) != list.end();
}

}  // namespace

Controller::Controller(ControllerOptions options, Candidate start,
                       std::vector<Candidate> candidates,
                       std::function<Seconds(const Configuration&, const Configuration&)> pause)
    : options_(options),
      candidates_(std::move(candidates)),
      start_(start),
      now_(std::move(start)),
      predicted_pause_(std::move(pause)),
      noise_(options.noise),
      scales_noise_(options.noise),
      times_(options.times),
      in_place_pause_(options.in_place_pause) {
  const bool listed = std::any_of(candidates_.begin(), candidates_.end(),
                                  [&](const Candidate& c) { return c.at == now_.at; });
  if (!listed) candidates_.push_back(now_);
}

void Controller::observe(const StepReport& step) {
  ++steps_here_;
  if (steps_here_ > options_.warm_steps) times_.observe(now_, step.time);
  unmeasured_samples_ += now_.at.global_batch;
  if (step.norms.empty()) return;
  const std::int64_t samples = std::exchange(unmeasured_samples_, 0);
  if (step.scale_norms.empty()) {
    scales_noise_ = NoiseScale(options_.noise);  // this layout has none; the old estimate is stale
  } else {
    scales_noise_.observe(samples, step.scale_norms);
  }
  noise_.observe(samples, step.norms);
}

std::optional<NoiseEstimate> Controller::noise() const {
  const std::optional<NoiseEstimate> whole = noise_.estimate(), scales = scales_noise();
  if (!whole || !scales) return whole;
  return combine_estimates(*whole, *scales, options_.scales_factor_sd);
}

bool Controller::due(const ControllerOptions& options, std::int64_t step) {
  return options.policy.adapt != Adapt::kOff && step % options.decide_every == 0;
}

Decision Controller::consider(std::optional<Seconds> remaining) {
  if (probing_) return probing_->left.empty() ? finish_probing(remaining) : probe_next();
  const Situation at = situation(remaining);
  probing_ = plan_probing(at);
  return probing_ ? probe_next() : decide(options_.policy, at);
}

void Controller::moved(const Decision& decision, const MoveReport& report) {
  COPUS_CHECK(decision.move);
  steps_here_ = 0;
  if (!report.done) {
    refused_.push_back(decision.to);
    return;
  }
  if (same_placement(now_.at.plan, decision.to.plan)) {
    in_place_pause_ = report.pause;
  } else {
    predicted_pauses_ += predicted_pause_(now_.at, decision.to);
    measured_pauses_ += report.pause;
  }
  came_from_ = now_.at;
  now_ = find(decision.to);
}

const Candidate& Controller::find(const Configuration& at) const {
  const auto found = std::find_if(candidates_.begin(), candidates_.end(),
                                  [&](const Candidate& candidate) { return candidate.at == at; });
  COPUS_CHECK(found != candidates_.end());
  return *found;
}

std::optional<double> Controller::goodput(const Candidate& at) const {
  const std::optional<NoiseEstimate> estimate = noise();
  if (!estimate || !std::isfinite(estimate->gns) || estimate->gns <= 0) return std::nullopt;
  const auto batch = static_cast<double>(at.at.global_batch);
  return copus::goodput(options_.policy.kind, batch / times_.believe(at).time.v, batch,
                        options_.policy.calibration * estimate->gns);
}

Seconds Controller::pause(const Configuration& from, const Configuration& to) const {
  if (same_placement(from.plan, to.plan)) return in_place_pause_;
  const double ratio = predicted_pauses_ > Seconds() ? measured_pauses_ / predicted_pauses_ : 1;
  return ratio * predicted_pause_(from, to);
}

Choice Controller::choice(const Candidate& candidate) const {
  return {candidate.at, times_.believe(candidate).time, times_.ratio_sd(candidate, now_),
          pause(now_.at, candidate.at)};
}

Situation Controller::situation(std::optional<Seconds> remaining) const {
  Situation at;
  at.now = choice(now_);
  for (const Candidate& candidate : candidates_) {
    if (!contains(refused_, candidate.at)) at.choices.push_back(choice(candidate));
  }
  at.noise = noise();
  at.steps_here = steps_here_;
  at.came_from = came_from_;
  at.remaining = remaining;
  return at;
}

// Plans tries if the policy would change the layout, were step times certain.
std::optional<Controller::Probing> Controller::plan_probing(const Situation& situation) const {
  if (options_.probe <= 0) return std::nullopt;
  PolicyOptions bold = options_.policy;
  bold.caution = 0;
  const Decision wanted = decide(bold, situation);
  if (!wanted.move || same_placement(wanted.to.plan, now_.at.plan)) return std::nullopt;

  const Choice target = choice(find(wanted.to));
  std::vector<Choice> rivals;
  for (const Choice& rival : situation.choices) {
    // Whether the rival would be the faster one if both step times were off by one standard
    // deviation.
    const bool close =
        rival.step_time / (1 + rival.relative_sd) <= target.step_time * (1 + target.relative_sd);
    if (close && rival.at.global_batch == target.at.global_batch &&
        rival.relative_sd > options_.probe_sd && !contains(probed_, rival.at) &&
        !same_placement(rival.at.plan, now_.at.plan)) {
      rivals.push_back(rival);
    }
  }
  std::stable_sort(rivals.begin(), rivals.end(),
                   [](const Choice& a, const Choice& b) { return a.step_time < b.step_time; });

  // Takes as many rivals as the expected saving pays for.
  const Seconds left = situation.remaining.value_or(options_.policy.horizon);
  Seconds budget = left * wanted.gain / (1 + wanted.gain);
  Probing probing{now_.at, {}, {}};
  for (const Choice& rival : rivals) {
    budget -= pause(probing.left.empty() ? now_.at : probing.left.back(), rival.at);
    if (budget < Seconds() || static_cast<std::int64_t>(probing.left.size()) == options_.probe)
      break;
    probing.left.push_back(rival.at);
  }
  if (probing.left.empty()) return std::nullopt;
  std::reverse(probing.left.begin(), probing.left.end());
  return probing;
}

Decision Controller::probe_next() {
  const Configuration next = probing_->left.back();
  probing_->left.pop_back();
  probing_->tried.push_back(next);
  probed_.push_back(next);

  Decision decision;
  decision.move = true;
  decision.to = next;
  decision.candidates = static_cast<std::int64_t>(probing_->left.size()) + 1;
  decision.goodput = goodput().value_or(0);
  if (decision.goodput > 0) {
    decision.gain = goodput(find(next)).value_or(0) / decision.goodput - 1;
    decision.critical_batch = options_.policy.calibration * noise()->gns;
  }
  const StepTime believed = times_.believe(find(next));
  decision.give_reason(fmt::format("a try; a step is believed to take {}, give or take {:.0f}%",
                                   human_seconds(believed.time),
                                   100 * times_.ratio_sd(find(next), now_)));
  return decision;
}

// All rivals are measured now, so only Goodput and one more pause decide.
Decision Controller::finish_probing(std::optional<Seconds> remaining) {
  const Probing done = *std::exchange(probing_, std::nullopt);
  PolicyOptions measured = options_.policy;
  measured.margin = measured.batch_margin = 0;
  measured.dwell_steps = 0;
  measured.caution = measured.noise_caution = 0;
  Situation at = situation(remaining);
  at.came_from.reset();  // a return to `home` does not count as undoing a move
  std::erase_if(at.choices,
                [&](const Choice& c) { return c.at != done.home && !contains(done.tried, c.at); });
  Decision decision = decide(measured, at);
  const std::string after =
      fmt::format("after {} {}: ", done.tried.size(), done.tried.size() == 1 ? "try" : "tries");
  decision.why = after + decision.why;
  if (!decision.reason.empty()) decision.reason = after + decision.reason;
  return decision;
}

const Configuration& Controller::resume_at() const {
  if (probing_) return probing_->home;
  return later_ && later_->move ? later_->to : now_.at;
}

Json Controller::to_json() const {
  return {{"noise", noise_.to_json()},
          {"scales_noise", scales_noise_.to_json()},
          {"unmeasured_samples", unmeasured_samples_},
          {"predicted_pauses_s", predicted_pauses_.v},
          {"measured_pauses_s", measured_pauses_.v},
          {"in_place_pause_s", in_place_pause_.v}};
}

Result<void> Controller::restore(const Json& json, const std::string& where) {
  constexpr double kMost = std::numeric_limits<double>::max();
  FieldReader fields(json, where);
  const Json& noise = fields.child("noise");
  const Json& scales = fields.child("scales_noise");
  const std::int64_t unmeasured =
      fields.integer("unmeasured_samples", 0, std::numeric_limits<std::int64_t>::max());
  const double predicted = fields.number("predicted_pauses_s", 0, kMost);
  const double measured = fields.number("measured_pauses_s", 0, kMost);
  const double in_place = fields.number("in_place_pause_s", 0, kMost);
  fields.refuse_unknown();
  COPUS_TRY_VOID(fields.finish());
  COPUS_TRY(noise_, NoiseScale::from_json(noise, where + ": noise", options_.noise));
  COPUS_TRY(scales_noise_, NoiseScale::from_json(scales, where + ": scales_noise", options_.noise));
  unmeasured_samples_ = unmeasured;
  predicted_pauses_ = Seconds(predicted);
  measured_pauses_ = Seconds(measured);
  in_place_pause_ = Seconds(in_place);
  return {};
}

}  // namespace copus
