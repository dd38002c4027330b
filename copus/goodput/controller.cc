#include "copus/goodput/controller.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "copus/base/text.h"
#include "copus/goodput/trial.h"

namespace copus {
namespace {

// A step time with a smaller spread than this, on a log scale, needs no trial.
constexpr double kCertain = 0.06;
// A layout is judged once so many of its steps were measured. If it is nearly as fast as another,
// the controller waits until the run has made kMostStepsToJudge steps there.
constexpr std::int64_t kStepsToJudge = 5;
constexpr std::int64_t kMostStepsToJudge = 30;
constexpr double kNearly = 1.5;  // standard deviations
// However exact predictions have been, one layout in so many is off by this much, on a log scale.
constexpr double kSurprise = 0.015;
constexpr double kSurpriseSd = 0.3;
// A try has to promise this many times what it is expected to cost.
constexpr double kWorth = 3;
// A try of a batch has to show so much of what is not known, and lasts at most this share of the
// run so far.
constexpr double kBatchTryShows = 0.7;
constexpr double kBatchWorth = 1.5;  // as kWorth; what is learned serves all later batches too
constexpr double kLongestBatchTry = 0.3;
// A run whose end is not known is expected to go on for this many times as long as it has lasted.
constexpr double kExpectedLife = 10;
// A layout that lost may be tried again if the winner's step time has changed by this factor.
constexpr double kSameMachine = 1.25;
// Each move in a row that breaks its promise doubles the dwell, at most this many times.
constexpr std::int64_t kMostDoublings = 3;

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
  if (options.calibration && options.policy.adapt != Adapt::kTrack) {
    calibration_.emplace(*options.calibration);
  }
}

void Controller::observe(const StepReport& step) {
  ++steps_here_;
  ++steps_since_move_;
  elapsed_ += step.time;
  if (steps_since_move_ > options_.warm_steps) {
    times_.observe(now_, step.time);
  } else if (has_moved_) {
    warm_.push_back(step.time);
  }
  if (trial_) trial_->cost += max(Seconds(), step.time - trial_->usual);
  if (const auto gns = finite_gns(); gns && calibration_ && step.loss && step.learning_rate > 0) {
    if (step.loss_begins_anew) calibration_->forget_losses();
    calibration_->observe({now_.at.global_batch, *step.loss, *gns, step.learning_rate});
  }
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
  proposes_try_ = returns_ = false;
  proposed_batch_.reset();
  charge_warm_up();
  if (trial_) return judge_trial(remaining);
  if (batch_try_) {
    if (elapsed_ < batch_try_->end || steps_here_ < options_.policy.dwell_steps) {
      return stay("measuring what this batch is worth");
    }
    return end_batch_try(remaining);
  }
  Decision decision = decide(patient_policy(), situation(remaining));
  if (decision.move || steps_here_ < options_.policy.dwell_steps) return decision;
  if (const Candidate* next = best_try(now_, remaining)) return propose_try(*next, now_);
  if (const std::optional<BatchTry> next = best_batch_try(remaining)) {
    return propose_batch_try(*next);
  }
  return decision;
}

// Goes home if home is believed to be better, by however little. Else this is where the run is now.
Decision Controller::end_batch_try(std::optional<Seconds> remaining) {
  ended_batch_try_ = std::exchange(batch_try_, std::nullopt);
  PolicyOptions policy = patient_policy();
  policy.batch_margin = policy.noise_caution = 0;
  policy.dwell_steps = 0;
  Situation at = situation(remaining);
  at.choices = {choice(find(ended_batch_try_->home))};
  at.came_from.reset();
  Decision decision = decide(policy, at);
  if (decision.move) {
    decision.give_reason("back from the try: " + decision.reason);
  } else {
    decision.why = "the try is over, and the run stays: " + decision.why;
    steps_here_ = 0;
    ended_batch_try_.reset();
  }
  return decision;
}

void Controller::moved(const Decision& decision, const MoveReport& report) {
  COPUS_CHECK(decision.move);
  const std::int64_t steps_before = std::exchange(steps_here_, 0);
  steps_since_move_ = 0;
  elapsed_ += report.pause;
  const bool is_try = std::exchange(proposes_try_, false);
  const bool is_return = std::exchange(returns_, false);
  const std::optional<Trial> left = std::exchange(left_, std::nullopt);
  const std::optional<BatchTry> tried = std::exchange(proposed_batch_, std::nullopt);
  const std::optional<BatchTry> ended = std::exchange(ended_batch_try_, std::nullopt);
  if (tried) batch_tries_cost_ += report.done ? tried->expected_cost : report.pause;
  if (trial_) {
    trial_->cost += report.pause;
  } else if (is_return || (is_try && !report.done)) {
    probed_ += report.pause;
  }
  if (!report.done) {
    refused_.push_back(decision.to);
    return;
  }
  const Candidate& to = find(decision.to);
  if (tried) {
    batch_try_ = tried;
    batch_try_->home = now_.at;
    batch_try_->steps_at_home = steps_before;
    batch_try_->came_home_from = came_from_;
    batch_try_->end = elapsed_ + tried->length;
  }
  const bool in_place = same_placement(now_.at.plan, to.at.plan);
  if (in_place) {
    in_place_pause_ = report.pause;
  } else {
    predicted_pauses_ += predicted_pause_(now_.at, to.at);
    measured_pauses_ += report.pause;
  }
  warm_.clear();
  warm_in_place_ = in_place;
  warm_after_return_ = is_return;
  const std::optional<Configuration> came_here_from = std::exchange(came_from_, now_.at);
  now_ = to;
  has_moved_ = true;
  if (is_return && left->exploring) {
    // To try a layout and to come back is no move: the dwell and the guard against undoing go on.
    came_from_ = left->came_home_from;
    if (now_.at == left->home) steps_here_ = left->steps_at_home;
  }
  if (ended) {
    came_from_ = ended->came_home_from;
    steps_here_ = ended->steps_at_home;
  }
  const bool may_begin = !trial_ && !in_place && !is_return && options_.judge_moves;
  const Candidate* home = may_begin ? at_batch(*came_from_) : nullptr;
  if (home != nullptr) {
    const StepTimeRatio believed = times_.ratio(now_, *home);
    if (is_try || believed.log_sd > kCertain) {
      trial_ = Trial{.home = *came_from_,
                     .steps_at_home = steps_before,
                     .came_home_from = came_here_from,
                     .tried = {},
                     .exploring = is_try,
                     .promised = -believed.log_mean,
                     .usual = times_.believe(*home).time,
                     .cost = report.pause};
    }
  }
  if (trial_ && !in_place) trial_->tried.push_back(now_.at);
}

// The steps after a move that take longer than the later ones are part of what the move costs.
void Controller::charge_warm_up() {
  if (warm_.empty() || steps_since_move_ < options_.warm_steps + kStepsToJudge) return;
  const Seconds usual = times_.believe(now_).time;
  Seconds extra;
  for (const Seconds step : std::exchange(warm_, {})) extra += max(Seconds(), step - usual);
  (warm_in_place_ ? in_place_pause_ : measured_pauses_) += extra;
  if (warm_after_return_) probed_ += extra;
}

const Candidate& Controller::find(const Configuration& at) const {
  const auto found = std::find_if(candidates_.begin(), candidates_.end(),
                                  [&](const Candidate& candidate) { return candidate.at == at; });
  COPUS_CHECK(found != candidates_.end());
  return *found;
}

std::optional<double> Controller::finite_gns() const {
  const std::optional<NoiseEstimate> estimate = noise();
  if (!estimate || !std::isfinite(estimate->gns) || estimate->gns <= 0) return std::nullopt;
  return estimate->gns;
}

CalibrationBelief::Interval Controller::calibration() const {
  const double given = options_.policy.calibration;
  return calibration_ ? calibration_->calibration()
                      : CalibrationBelief::Interval{given, given, given};
}

double Controller::lr_aware() const {
  if (!calibration_) return options_.policy.kind == GoodputKind::kLrAware ? 1 : 0;
  double sum = 0;
  for (const auto& [weight, law] : calibration_->laws()) {
    if (law.kind == GoodputKind::kLrAware) sum += weight;
  }
  return sum;
}

std::optional<double> Controller::critical_batch() const {
  const std::optional<double> gns = finite_gns();
  return gns ? std::optional(calibration().median * *gns) : std::nullopt;
}

std::optional<double> Controller::goodput() const {
  const std::optional<double> critical = critical_batch();
  if (!critical) return std::nullopt;
  const auto batch = static_cast<double>(now_.at.global_batch);
  const std::optional<Seconds> measured = times_.recent(now_.at);
  const Seconds step = measured ? *measured : times_.believe(now_).time;
  const GoodputKind kind = lr_aware() >= 0.5 ? GoodputKind::kLrAware : GoodputKind::kPlain;
  return copus::goodput(kind, batch / step.v, batch, *critical);
}

Seconds Controller::pause(const Configuration& from, const Configuration& to) const {
  if (same_placement(from.plan, to.plan)) return in_place_pause_;
  const double ratio = predicted_pauses_ > Seconds() ? measured_pauses_ / predicted_pauses_ : 1;
  return ratio * predicted_pause_(from, to);
}

Choice Controller::choice(const Candidate& candidate) const {
  return {candidate.at, times_.believe(candidate).time, times_.ratio(candidate, now_).log_sd,
          pause(now_.at, candidate.at)};
}

PolicyOptions Controller::patient_policy() const {
  PolicyOptions policy = options_.policy;
  policy.calibration = calibration().median;
  policy.dwell_steps <<= std::min(misses_, kMostDoublings);
  return policy;
}

Situation Controller::situation(std::optional<Seconds> remaining) const {
  Situation at;
  at.now = choice(now_);
  for (const Candidate& candidate : candidates_) {
    if (!contains(refused_, candidate.at) && !has_lost(candidate.at)) {
      at.choices.push_back(choice(candidate));
    }
  }
  at.noise = noise();
  if (calibration_) at.laws = calibration_->laws();
  at.steps_here = steps_here_;
  at.came_from = came_from_;
  at.remaining = remaining;
  return at;
}

Seconds Controller::left(std::optional<Seconds> remaining) const {
  return remaining.value_or(options_.policy.horizon);
}

// Where the end is not known, a young run spends little on tries.
Seconds Controller::to_expect(std::optional<Seconds> remaining) const {
  return remaining ? *remaining : min(options_.policy.horizon, kExpectedLife * elapsed_);
}

bool Controller::has_lost(const Configuration& at) const {
  return std::any_of(lost_.begin(), lost_.end(), [&](const Lost& lost) {
    if (lost.at.global_batch != at.global_batch || !same_placement(lost.at.plan, at.plan)) {
      return false;
    }
    const double changed = times_.believe(find(lost.winner)).time / lost.winner_step;
    return changed < kSameMachine && changed > 1 / kSameMachine;
  });
}

const Candidate* Controller::at_batch(const Configuration& layout) const {
  const Candidate* fastest = nullptr;
  Seconds time;
  for (const Candidate& candidate : candidates_) {
    if (candidate.at.global_batch != now_.at.global_batch ||
        !same_placement(candidate.at.plan, layout.plan) || contains(refused_, candidate.at)) {
      continue;
    }
    const Seconds believed = times_.believe(candidate).time;
    if (fastest == nullptr || believed < time) {
      fastest = &candidate;
      time = believed;
    }
  }
  return fastest;
}

// The layout whose try promises the most beyond its cost, at the current batch.
const Candidate* Controller::best_try(const Candidate& reference,
                                      std::optional<Seconds> remaining) const {
  if (options_.probe <= 0 || options_.policy.adapt != Adapt::kFull) return nullptr;
  const Seconds time_left = to_expect(remaining);
  const Seconds budget =
      options_.probe * (elapsed_ + left(remaining)) - probed_ - (trial_ ? trial_->cost : Seconds());
  const Seconds step = times_.believe(reference).time;
  const auto steps =
      static_cast<double>(std::max(options_.decide_every, options_.warm_steps + kStepsToJudge));
  const Candidate* best = nullptr;
  Seconds most;
  for (const Candidate& candidate : candidates_) {
    if (candidate.at.global_batch != now_.at.global_batch ||
        same_placement(candidate.at.plan, now_.at.plan) ||
        same_placement(candidate.at.plan, reference.at.plan) || contains(refused_, candidate.at) ||
        has_lost(candidate.at)) {
      continue;
    }
    if (trial_ && std::any_of(trial_->tried.begin(), trial_->tried.end(), [&](const auto& tried) {
          return same_placement(tried.plan, candidate.at.plan);
        })) {
      continue;
    }
    const StepTimeRatio ratio = times_.ratio(candidate, reference);
    // What surprises is a layout, so it is tried for that at one batch alone.
    const double surprise = times_.knows_layout(candidate.at.plan) ? 0 : kSurprise;
    if (surprise == 0 && ratio.log_sd <= kCertain) continue;
    std::vector<WeightedRatio> belief = times_.ratio_mixture(candidate, reference);
    for (WeightedRatio& part : belief) part.weight *= 1 - surprise;
    belief.push_back({surprise, {ratio.log_mean, kSurpriseSd}});
    const TryWorth worth = worth_of_try(belief);
    const Seconds pauses =
        pause(now_.at, candidate.at) + worth.fails * pause(candidate.at, reference.at);
    const Seconds cost = pauses + steps * worth.slowdown * step;
    // The budget also bears a try that is one standard deviation slower than believed.
    const double slow = std::max(worth.slowdown, std::exp(ratio.log_mean + ratio.log_sd) - 1);
    const Seconds saving = worth.saving * time_left;
    if (saving < kWorth * cost || pauses + steps * slow * step > budget) continue;
    if (best == nullptr || saving - cost > most) {
      best = &candidate;
      most = saving - cost;
    }
  }
  return best;
}

// The batch, at the present layout, whose try promises the most beyond its cost.
std::optional<Controller::BatchTry> Controller::best_batch_try(
    std::optional<Seconds> remaining) const {
  const std::optional<double> gns = finite_gns();
  if (!calibration_ || options_.batch_probe <= 0 || !gns) return std::nullopt;
  const Seconds time_left = to_expect(remaining);
  const Seconds budget = options_.batch_probe * elapsed_ - batch_tries_cost_;
  const std::vector<WeightedLaw> laws = calibration_->laws();
  const std::int64_t here = now_.at.global_batch;
  const Seconds step = times_.believe(now_).time;
  std::optional<BatchTry> best;
  Seconds most;
  for (const Candidate& candidate : candidates_) {
    const std::int64_t there = candidate.at.global_batch;
    const double growth = static_cast<double>(there) / static_cast<double>(here);
    if (there == here || !growth_allowed(options_.policy, growth) ||
        !same_placement(candidate.at.plan, now_.at.plan) || contains(refused_, candidate.at) ||
        has_lost(candidate.at)) {
      continue;
    }
    const Seconds step_there = times_.believe(candidate).time;
    const auto [worth, log_sd] =
        worth_of_batch_try(laws, *gns, here, there, growth * (step / step_there));
    if (log_sd <= 0) continue;
    const double length = calibration_->length_to_show(kBatchTryShows * log_sd);
    if (!(length <= kLongestBatchTry)) continue;
    BatchTry next;
    next.at = candidate.at;
    next.length =
        max(length * elapsed_, static_cast<double>(options_.policy.dwell_steps) * step_there);
    next.expected_cost =
        (1 + worth.fails) * pause(now_.at, candidate.at) + worth.slowdown * next.length;
    const Seconds saving = worth.saving * max(Seconds(), time_left - next.length);
    if (saving < kBatchWorth * next.expected_cost || next.expected_cost > budget) continue;
    if (!best || saving - next.expected_cost > most) {
      best = next;
      most = saving - next.expected_cost;
    }
  }
  return best;
}

Decision Controller::propose_batch_try(const BatchTry& to) {
  proposed_batch_ = to;
  Decision decision = stay("");
  decision.move = true;
  decision.to = to.at;
  const CalibrationBelief::Interval c = calibration();
  decision.give_reason(
      fmt::format("a try for {}; the critical batch is {:.2g} to {:.2g} times the noise scale",
                  human_seconds(to.length), c.low, c.high));
  return decision;
}

Decision Controller::stay(std::string why) const {
  Decision decision;
  decision.to = now_.at;
  decision.candidates = 1;
  decision.goodput = goodput().value_or(0);
  decision.critical_batch = critical_batch().value_or(0);
  decision.why = std::move(why);
  return decision;
}

Decision Controller::propose_try(const Candidate& to, const Candidate& reference) {
  proposes_try_ = true;
  const StepTimeRatio ratio = times_.ratio(to, reference);
  Decision decision = stay("");
  decision.move = true;
  decision.to = to.at;
  decision.gain = std::exp(-times_.ratio(to, now_).log_mean) - 1;  // at the same batch
  decision.give_reason(fmt::format(
      "a try; a step is believed to take x{:.2f} of {}'s, uncertain by a factor of {:.2f}",
      std::exp(ratio.log_mean), short_name(reference.at.plan), std::exp(ratio.log_sd)));
  return decision;
}

// The layout is measured now, so only step times and one more pause decide.
Decision Controller::judge_trial(std::optional<Seconds> remaining) {
  Decision decision;
  decision.to = now_.at;
  decision.candidates = static_cast<std::int64_t>(trial_->tried.size()) + 1;
  decision.goodput = goodput().value_or(0);
  if (steps_since_move_ < options_.warm_steps + kStepsToJudge) {
    decision.why = "measuring this layout";
    return decision;
  }
  const Candidate* best = &now_;
  Seconds most_saved;
  bool close = false;
  const auto consider_return = [&](const Configuration& layout) {
    const Candidate* there = at_batch(layout);
    if (there == nullptr || same_placement(there->at.plan, now_.at.plan)) return;
    const StepTimeRatio ratio = times_.ratio(*there, now_);
    close = close || std::abs(ratio.log_mean) < kNearly * ratio.log_sd;
    const Seconds saved =
        (1 - std::exp(ratio.log_mean)) * left(remaining) - pause(now_.at, there->at);
    if (saved > most_saved) {
      best = there;
      most_saved = saved;
    }
  };
  consider_return(trial_->home);
  for (const Configuration& tried : trial_->tried) consider_return(tried);
  if (close && steps_since_move_ < kMostStepsToJudge) {
    decision.why = "measuring this layout, which is nearly as fast as another";
    return decision;
  }

  if (trial_->exploring) {
    if (const Candidate* next = best_try(*best, remaining)) {
      trial_->usual = times_.believe(*best).time;
      return propose_try(*next, *best);
    }
  }
  const Candidate winner = *best;
  const StepTimeRatio gained = times_.ratio(now_, winner);
  const std::size_t tries = trial_->tried.size();
  const std::string after =
      fmt::format("after {} {}", tries, tries == 1 ? "measured layout" : "measured layouts");
  end_trial(winner);
  if (winner.at == now_.at) {
    left_.reset();
    decision.why = after + ": stays, because going back would not pay";
    return decision;
  }
  decision.move = returns_ = true;
  decision.to = winner.at;
  decision.gain = std::exp(gained.log_mean) - 1;
  decision.give_reason(fmt::format("{}: a step takes x{:.2f} of the present one's", after,
                                   std::exp(-gained.log_mean)));
  return decision;
}

void Controller::end_trial(const Candidate& winner) {
  left_ = std::exchange(trial_, std::nullopt);
  const Trial& done = *left_;
  const Seconds winner_step = times_.believe(winner).time;
  std::vector<Configuration> layouts = done.tried;
  layouts.push_back(done.home);
  for (const Configuration& layout : layouts) {
    const Candidate* there = at_batch(layout);
    // A layout that is faster, but not worth the pause, has not lost.
    if (there == nullptr || same_placement(layout.plan, winner.at.plan) ||
        times_.ratio(*there, winner).log_mean <= 0) {
      continue;
    }
    lost_.push_back({{layout.plan, now_.at.global_batch}, winner_step, winner.at});
  }
  const bool back_home = same_placement(done.home.plan, winner.at.plan);
  if (done.exploring || back_home) probed_ += done.cost;
  if (done.exploring) {
    if (winner.at == now_.at) came_from_ = done.came_home_from;
    return;
  }
  // A move of the policy. Half of the promised speed, on a log scale, is a promise kept.
  const Candidate* home = at_batch(done.home);
  const double measured = home == nullptr ? 0 : -times_.ratio(now_, *home).log_mean;
  const bool kept = !back_home && measured >= done.promised / 2;
  misses_ = kept ? 0 : misses_ + 1;
}

const Configuration& Controller::resume_at() const {
  if (trial_ && trial_->exploring) return trial_->home;
  if (batch_try_) return batch_try_->home;
  const bool is_try = proposes_try_ || proposed_batch_;
  return later_ && later_->move && !is_try ? later_->to : now_.at;
}

Json Controller::to_json() const {
  Json json = {{"noise", noise_.to_json()},
               {"scales_noise", scales_noise_.to_json()},
               {"unmeasured_samples", unmeasured_samples_},
               {"predicted_pauses_s", predicted_pauses_.v},
               {"measured_pauses_s", measured_pauses_.v},
               {"in_place_pause_s", in_place_pause_.v}};
  if (calibration_) json["calibration"] = calibration_->to_json();
  // A run that decides nothing saves no times, so that equal runs have equal checkpoints.
  if (options_.policy.adapt == Adapt::kOff) return json;
  json["machine"] = options_.machine;
  json["step_times"] = times_.to_json();
  json["refused"] = Json::array();
  for (const Configuration& at : refused_) json["refused"].push_back(to_text(at));
  json["elapsed_s"] = elapsed_.v;
  json["probed_s"] = (probed_ + (trial_ ? trial_->cost : Seconds())).v;
  json["misses"] = misses_;
  json["batch_tries_s"] = batch_tries_cost_.v;
  return json;
}

Result<void> Controller::restore(const Json& json, const std::string& where) {
  constexpr double kMost = std::numeric_limits<double>::max();
  constexpr std::int64_t kMostInteger = std::numeric_limits<std::int64_t>::max();
  FieldReader fields(json, where);
  const Json& noise = fields.child("noise");
  const Json& scales = fields.child("scales_noise");
  const std::int64_t unmeasured = fields.integer("unmeasured_samples", 0, kMostInteger);
  const double predicted = fields.number("predicted_pauses_s", 0, kMost);
  const double measured = fields.number("measured_pauses_s", 0, kMost);
  const double in_place = fields.number("in_place_pause_s", 0, kMost);
  // Checkpoints of earlier versions have none of these.
  const std::string machine = fields.text_or("machine", "");
  const Json& times = fields.child("step_times");
  const Json& refused = fields.child("refused");
  const double elapsed = fields.number_or("elapsed_s", 0, 0, kMost);
  const double probed = fields.number_or("probed_s", 0, 0, kMost);
  const std::int64_t misses = fields.integer_or("misses", 0, 0, 1'000'000);
  const Json& calibration = fields.child("calibration");
  const double batch_tries = fields.number_or("batch_tries_s", 0, 0, kMost);
  fields.refuse_unknown();
  COPUS_TRY_VOID(fields.finish());
  COPUS_TRY(noise_, NoiseScale::from_json(noise, where + ": noise", options_.noise));
  COPUS_TRY(scales_noise_, NoiseScale::from_json(scales, where + ": scales_noise", options_.noise));
  if (machine == options_.machine && !times.is_null()) {
    COPUS_TRY_VOID(times_.restore(times, where + ": step_times", candidates_));
    if (!refused.is_array()) return field_error(where + ": refused", "want a list of texts");
    for (const Json& each : refused) {
      if (!each.is_string()) return field_error(where + ": refused", "want a list of texts");
      COPUS_TRY(const Configuration at, parse_configuration(each.get<std::string>()));
      refused_.push_back(at);
    }
    misses_ = misses;
  }
  if (calibration_ && !calibration.is_null()) {
    COPUS_TRY_VOID(calibration_->restore(calibration, where + ": calibration"));
  }
  batch_tries_cost_ = Seconds(batch_tries);
  unmeasured_samples_ = unmeasured;
  predicted_pauses_ = Seconds(predicted);
  measured_pauses_ = Seconds(measured);
  in_place_pause_ = Seconds(in_place);
  elapsed_ = Seconds(elapsed);
  probed_ = Seconds(probed);
  return {};
}

}  // namespace copus
