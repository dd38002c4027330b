#include "copus/goodput/policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "copus/base/text.h"

namespace copus {
namespace {

constexpr double kIntervalSds = 1.96;  // a 95% interval's half width
// Undoing a move takes this many times the steps and the certainty about the noise scale, because a
// wish to go back is a sign that the estimate fluctuates.
constexpr int kDwellToUndo = 2;
constexpr int kCertaintyToUndo = 4;

// The bars that a choice must clear, in the order in which they are checked.
enum class Bar { kMargin, kStepTime, kNoise, kPause, kDwell };

struct Rated {
  const Choice* choice = nullptr;
  double goodput = 0;
  double gain = 0;
};

// The estimate to decide by. If |G|^2 cannot be told from 0, the noise scale may be infinite; then
// the lower end of its interval is used. Returns nothing if that is 0.
std::optional<NoiseEstimate> usable(const std::optional<NoiseEstimate>& noise) {
  if (!noise) return std::nullopt;
  NoiseEstimate estimate = *noise;
  if (!std::isfinite(estimate.gns)) estimate.gns = estimate.low;
  if (!(estimate.gns > 0)) return std::nullopt;
  return estimate;
}

class Judge {
 public:
  Judge(const PolicyOptions& options, const Situation& situation, const NoiseEstimate& noise)
      : options_(options), at_(situation), noise_(noise), laws_(situation.laws) {
    if (laws_.empty()) laws_.push_back({1, {options.calibration, 1, options.kind}});
  }

  double critical_batch() const { return options_.calibration * noise_.gns; }

  double goodput_of(const Choice& choice) const {
    const auto batch = static_cast<double>(choice.at.global_batch);
    return goodput(options_.kind, batch / choice.step_time.v, batch, critical_batch());
  }

  bool allowed(const Choice& choice) const {
    return choice.at != at_.now.at && choice.step_time > Seconds() &&
           growth_allowed(options_, batch_ratio(choice)) &&
           (options_.adapt == Adapt::kFull || stays(choice));
  }

  Rated rate(const Choice& choice) const {
    const double ratio = speed(choice) * progress_ratio(choice, noise_.gns);
    return {&choice, goodput_of(at_.now) * ratio, ratio - 1};
  }

  // Compares by Goodput. Among equals, prefers the smaller change, then the simpler plan, then the
  // name.
  bool better(const Rated& a, const Rated& b) const {
    if (a.goodput != b.goodput) return a.goodput > b.goodput;
    auto rank = [&](const Choice& choice) {
      const ParallelPlan& plan = choice.at.plan;
      return std::tuple(!stays(choice), std::abs(std::log(batch_ratio(choice))),
                        plan.tp * plan.cp * plan.pp * plan.vp, to_text(choice.at));
    };
    return rank(*a.choice) < rank(*b.choice);
  }

  std::optional<Bar> missing(const Rated& rated) const {
    if (!(rated.gain > 0 && rated.gain >= margin(rated))) return Bar::kMargin;
    // The gain must remain if the step takes `caution` standard deviations longer than believed. A
    // change in place is exempt: it is measured at once and taken back for free.
    if (!stays(*rated.choice) &&
        !(std::log1p(rated.gain) > options_.caution * rated.choice->log_sd)) {
      return Bar::kStepTime;
    }
    if (!(worst_gain(rated) >= 0)) return Bar::kNoise;
    if (!(saved(rated) > rated.choice->pause)) return Bar::kPause;
    if (at_.steps_here < dwell(rated)) return Bar::kDwell;
    return std::nullopt;
  }

  // "Goodput +14.2% (speed x1.31, …; critical batch 85)".
  std::string describe(const Rated& rated) const {
    const Choice& to = *rated.choice;
    std::string text = fmt::format("Goodput {:+.1f}% (speed x{:.2f}", 100 * rated.gain, speed(to));
    const double progress = progress_ratio(to, noise_.gns);
    if (!laws_agree_in_kind()) {
      text += fmt::format(", progress per sample x{:.2f}", progress);
    } else if (laws_.front().law.kind == GoodputKind::kPlain) {
      text += fmt::format(", efficiency x{:.2f}", progress);
    } else {
      const double rate = learning_rate_factor(batch_of(to), batch_of(at_.now));
      text += fmt::format(", efficiency x{:.2f}, learning rate x{:.2f}", progress / rate, rate);
    }
    return text + fmt::format("; critical batch {})", human_count(critical_batch()));
  }

  std::string describe_pause(const Rated& rated) const {
    const Seconds pause = rated.choice->pause;
    if (pause <= Seconds()) return "";
    // Every t seconds there save gain * t seconds here.
    return fmt::format(", pays its {} in {}", human_seconds(pause),
                       human_seconds(pause / rated.gain));
  }

  std::string describe_lack(const Rated& rated, Bar bar) const {
    const bool in_place = stays(*rated.choice);
    switch (bar) {
      case Bar::kMargin:
        return fmt::format("; a change of {} has to gain {:.3g}%", in_place ? "batch" : "layout",
                           100 * margin(rated));
      case Bar::kStepTime:
        return fmt::format("; its step time is uncertain by a factor of {:.2f}",
                           std::exp(rated.choice->log_sd));
      case Bar::kNoise:
        return fmt::format("; it could be {:+.1f}%: the noise scale is uncertain ({} to {})",
                           100 * worst_gain(rated), human_count(noise_.low),
                           human_count(noise_.high));
      case Bar::kPause:
        return fmt::format("; its pause of {} would save only {} in the {} that {}",
                           human_seconds(rated.choice->pause), human_seconds(saved(rated)),
                           human_seconds(left()), at_.remaining ? "are left" : "are counted on");
      case Bar::kDwell:
        return fmt::format("; {} of {} steps here{}", at_.steps_here, dwell(rated),
                           undoes(rated.choice->at) ? " before a move is undone" : "");
    }
    return "";
  }

 private:
  bool stays(const Choice& choice) const { return same_placement(choice.at.plan, at_.now.at.plan); }
  static double batch_of(const Choice& choice) {
    return static_cast<double>(choice.at.global_batch);
  }
  double batch_ratio(const Choice& choice) const { return batch_of(choice) / batch_of(at_.now); }
  // Samples per second there over those here.
  double speed(const Choice& choice) const {
    return batch_ratio(choice) * at_.now.step_time / choice.step_time;
  }
  double margin(const Rated& rated) const {
    return stays(*rated.choice) ? options_.batch_margin : options_.margin;
  }

  // The gain if the noise scale is off by `noise_caution` standard deviations to the side that is
  // worse for this choice. Without this bar, an estimate that fluctuates around the point where two
  // batches are equally good would send the run to and fro. The bar costs little: Goodput is flat
  // around its best batch, so it blocks only small gains.
  double worst_gain(const Rated& rated) const {
    const double sds = options_.noise_caution * (undoes(rated.choice->at) ? kCertaintyToUndo : 1);
    auto towards = [&](double end) {
      const double nearest = noise_.gns * 1e-3;  // an end at 0 counts as a thousandth
      return noise_.gns * std::pow(std::max(end, nearest) / noise_.gns, sds / kIntervalSds);
    };
    const double expected = progress_ratio(*rated.choice, noise_.gns);
    const double worst = std::min(progress_ratio(*rated.choice, towards(noise_.low)),
                                  progress_ratio(*rated.choice, towards(noise_.high)));
    return (1 + rated.gain) * std::min(1.0, worst / expected) - 1;
  }
  // The progress per sample there over the one here, if the noise scale is `gns`. Where laws
  // differ, it is that of the mean time that the same progress takes.
  double progress_ratio(const Choice& choice, double gns) const {
    const double here = batch_of(at_.now), there = batch_of(choice);
    if (here == there) return 1;
    double time = 0;
    for (const auto& [weight, law] : laws_) {
      time += weight * law.progress_per_sample(here, gns) / law.progress_per_sample(there, gns);
    }
    return 1 / time;
  }
  bool laws_agree_in_kind() const {
    return std::all_of(laws_.begin(), laws_.end(), [&](const WeightedLaw& each) {
      return each.law.kind == laws_.front().law.kind;
    });
  }

  Seconds left() const { return at_.remaining.value_or(options_.horizon); }
  // The time that the move saves on the work that takes left() here.
  Seconds saved(const Rated& rated) const { return left() * rated.gain / (1 + rated.gain); }

  // Whether this move undoes the last one, or a part of it.
  bool undoes(const Configuration& to) const {
    if (!at_.came_from) return false;
    const Configuration& before = *at_.came_from;
    const Configuration& now = at_.now.at;
    const bool batch_back =
        (before.global_batch < now.global_batch && to.global_batch < now.global_batch) ||
        (before.global_batch > now.global_batch && to.global_batch > now.global_batch);
    const bool layout_back =
        !same_placement(before.plan, now.plan) && same_placement(before.plan, to.plan);
    return to == before || batch_back || layout_back;
  }
  std::int64_t dwell(const Rated& rated) const {
    return (undoes(rated.choice->at) ? kDwellToUndo : 1) * options_.dwell_steps;
  }

  const PolicyOptions& options_;
  const Situation& at_;
  const NoiseEstimate& noise_;
  std::vector<WeightedLaw> laws_;
};

// Chooses the largest batch that the layout allows and that is not above the critical batch, or the
// smallest batch if all are above.
Decision track(const PolicyOptions& options, const Situation& situation, const Judge& judge,
               Decision decision) {
  const auto batch = [](const Choice& choice) { return choice.at.global_batch; };
  const Choice* best = &situation.now;
  const auto fits = [&](const Choice& choice) {
    return static_cast<double>(batch(choice)) <= judge.critical_batch();
  };
  for (const Choice& choice : situation.choices) {
    if (!judge.allowed(choice)) continue;
    ++decision.candidates;
    // Below the critical batch, the larger batch is nearer; above it, the smaller one.
    const bool nearer = fits(choice) != fits(*best) ? fits(choice)
                        : fits(choice)              ? batch(choice) > batch(*best)
                                                    : batch(choice) < batch(*best);
    const bool faster = batch(choice) == batch(*best) && best != &situation.now &&
                        choice.step_time < best->step_time;
    if (nearer || faster) best = &choice;
  }
  decision.to = best->at;
  decision.gain = judge.rate(*best).gain;
  decision.move = best != &situation.now && situation.steps_here >= options.dwell_steps;
  decision.give_reason(
      fmt::format("the critical batch is {}", human_count(judge.critical_batch())));
  return decision;
}

}  // namespace

std::string_view to_string(Rules rules) {
  switch (rules) {
    case Rules::kCopus:
      return "copus";
    case Rules::kCopus2026:
      return "copus-2026";
  }
  return "";
}

PolicyOptions published(PolicyOptions options) {
  options.kind = GoodputKind::kLrAware;
  options.margin = options.batch_margin = 0.1;
  options.calibration = 2;
  options.caution = options.noise_caution = 0;
  return options;
}

bool growth_allowed(const PolicyOptions& options, double ratio) {
  const double slack = 1e-9;  // 3 x 2 / 2 must not be above 3
  return ratio <= options.growth + slack && ratio >= 1 / options.growth - slack;
}

void Decision::give_reason(std::string text) {
  why = fmt::format("{}: {}", to_text(to), text);
  reason = std::move(text);
}

Decision decide(const PolicyOptions& options, const Situation& situation) {
  Decision decision;
  decision.to = situation.now.at;
  const std::optional<NoiseEstimate> noise = usable(situation.noise);
  if (!noise) {
    decision.why =
        options.adapt == Adapt::kOff ? "adapting is off" : "the noise scale is not known yet";
    return decision;
  }
  const Judge judge(options, situation, *noise);
  decision.critical_batch = judge.critical_batch();
  decision.goodput = judge.goodput_of(situation.now);
  if (options.adapt == Adapt::kOff) {
    decision.why = "adapting is off";
    return decision;
  }
  if (options.adapt == Adapt::kTrack) return track(options, situation, judge, decision);
  std::optional<Rated> top, pick;  // the best of all, and of those that clear every bar
  for (const Choice& choice : situation.choices) {
    if (!judge.allowed(choice)) continue;
    ++decision.candidates;
    const Rated rated = judge.rate(choice);
    if (!top || judge.better(rated, *top)) top = rated;
    if (!judge.missing(rated) && (!pick || judge.better(rated, *pick))) pick = rated;
  }
  if (pick) {
    decision.move = true;
    decision.to = pick->choice->at;
    decision.gain = pick->gain;
    decision.give_reason(judge.describe(*pick) + judge.describe_pause(*pick));
  } else if (top && top->gain > 0) {
    decision.to = top->choice->at;
    decision.gain = top->gain;
    decision.give_reason(judge.describe(*top) + judge.describe_lack(*top, *judge.missing(*top)));
  } else if (top) {
    decision.why = fmt::format("best where it is; next is {}: {}", to_text(top->choice->at),
                               judge.describe(*top));
  } else {
    decision.why = "no other configuration is allowed";
  }
  return decision;
}

}  // namespace copus
