#include "copus/tuner/search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "copus/base/seconds_since.h"
#include "copus/base/text.h"
#include "copus/spec/plan_rules.h"

namespace copus {
namespace {

using Int = std::int64_t;
using enum PlanField;

// More virtual stages than this must be pinned: they gain hardly any bubble and cost messages.
constexpr Int kMostVirtualStages = 64;
constexpr Int kProgressEvery = 1 << 20;  // plans: about half a second

std::vector<Int> divisors(Int n) {
  std::vector<Int> small, large;
  for (Int i = 1; i * i <= n; ++i) {
    if (n % i != 0) continue;
    small.push_back(i);
    if (i != n / i) large.push_back(n / i);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

// A point of the space: a plan whose uneven split is still four numbers.
struct Candidate {
  ParallelPlan plan;
  StageSplit split;
  bool equal = true;
  Int found = 0;  // number of plans searched up to this one
  Seconds time = Seconds(std::numeric_limits<double>::infinity());
};

bool fits(const StepModel& model, const StepEstimate& estimate) {
  return estimate.memory.total() <= model.budget();
}

bool same_layout(const ParallelPlan& a, const ParallelPlan& b) {
  return a.tp == b.tp && a.cp == b.cp && a.ep == b.ep && a.pp == b.pp && a.dp == b.dp &&
         a.expert_tp() == b.expert_tp();
}

// The search reports a variant only if it is faster than a simpler variant of the same layout by
// this share. It walks the space from simple to complicated: equal stages before uneven ones, lower
// ZeRO stages first, no recompute before recompute. Sequence parallelism comes first, because it
// saves memory.
constexpr double kWorthTheTrouble = 1e-3;

// The fastest candidates by the closed form, which will be simulated. Each layout may have several,
// because the closed form may misjudge near-ties between variants, but only a limited number.
class Shortlist {
 public:
  Shortlist(std::size_t size, std::size_t per_layout) : size_(size), per_layout_(per_layout) {
    kept_.reserve(size + 1);
  }

  // A candidate slower than this cannot enter.
  Seconds bound() const {
    return kept_.size() < size_ ? Seconds(std::numeric_limits<double>::infinity())
                                : kept_.back().time;
  }

  void offer(const Candidate& candidate) {
    if (candidate.time >= bound()) return;
    std::size_t same = 0;
    auto slowest = kept_.end();
    for (auto it = kept_.begin(); it != kept_.end(); ++it) {
      if (!same_layout(it->plan, candidate.plan)) continue;
      ++same;
      slowest = it;
    }
    if (same >= per_layout_) {
      if (slowest->time <= candidate.time) return;
      kept_.erase(slowest);
    }
    const auto place = std::upper_bound(kept_.begin(), kept_.end(), candidate.time,
                                        [](Seconds t, const Candidate& c) { return t < c.time; });
    kept_.insert(place, candidate);
    if (kept_.size() > size_) kept_.pop_back();
  }

  const std::vector<Candidate>& kept() const { return kept_; }

 private:
  std::size_t size_;
  std::size_t per_layout_;
  std::vector<Candidate> kept_;
};

// The rules that each loop of the walk checks: a rule is checked as soon as its fields are known.
struct LoopRules {
  using Rules = std::vector<const PlanRule*>;

  explicit LoopRules(bool has_limits) : limited(has_limits) {}

  Rules next(PlanFields added) {
    Rules rules = rules_of(known, added, limited);
    known = known | added;
    return rules;
  }

  bool limited;
  PlanFields known;
  Rules tp = next({kTp});
  Rules cp = next({kCp});
  Rules ep = next({kEp});
  Rules etp = next({kEtp});
  Rules sp = next({kSp});
  Rules recompute = next({kRecompute});
  Rules micro_batch = next({kMicroBatch});
  Rules pipeline = next({kPp, kDp});  // dp is the number of GPUs / (the others)
  Rules schedule = next({kSchedule, kVp});
  Rules split = next({kStageLayers});
  Rules zero = next({kZero});
};

// Walks the space. The outer loops are over the fields that ShapeCosts depends on.
class Walk {
 public:
  Walk(const StepModel& model, const SearchRequest& request, Shortlist& shortlist,
       bool stops_at_first = false)
      : model_(model),
        spec_(model.model()),
        fixed_(request.fixed),
        micro_batches_(request.micro_batches),
        progress_(request.progress),
        shortlist_(shortlist),
        stops_at_first_(stops_at_first),
        gpus_(model.cluster().gpus()),
        job_(plan_job(model)),
        rules_(model.limits() != nullptr) {}

  void run() {
    const std::vector<Int> gpu_divisors = divisors(gpus_);
    const std::vector<Int> batch_divisors = divisors(model_.global_batch());
    const std::vector<Int> expert_divisors =
        spec_.is_moe() ? divisors(spec_.moe.experts) : std::vector<Int>{1};
    for (const Int tp : choices(kTp, fixed_.plan.tp, gpu_divisors)) {
      plan_.tp = tp;
      if (!let_pass(rules_.tp)) continue;
      for (const Int cp : choices(kCp, fixed_.plan.cp, gpu_divisors)) {
        plan_.cp = cp;
        if (gpus_ % (tp * cp) != 0 || !let_pass(rules_.cp)) continue;
        if (cp > 1 && !runs_fused_attention(model_.options(), model_.cluster().gpu)) continue;
        for (const Int ep : choices(kEp, fixed_.plan.ep, expert_divisors)) {
          plan_.ep = ep;
          if (!let_pass(rules_.ep)) continue;
          for (const Int etp : expert_cuts(tp)) {
            plan_.etp = etp;
            if (!let_pass(rules_.etp)) continue;
            walk_shapes(batch_divisors, gpu_divisors);
          }
        }
      }
    }
  }

  Int searched() const { return searched_; }
  Int feasible() const { return feasible_; }
  const Candidate& least_memory() const { return least_memory_; }

 private:
  void walk_shapes(const std::vector<Int>& batch_divisors, const std::vector<Int>& gpu_divisors) {
    for (const bool sp : {true, false}) {
      plan_.sp = sp;
      if (!allowed(kSp, fixed_.plan.sp, sp) || !let_pass(rules_.sp)) continue;
      for (const Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        plan_.recompute = r;
        if (!allowed(kRecompute, fixed_.plan.recompute, r)) continue;
        if (!let_pass(rules_.recompute)) continue;
        for (const Int b : choices(kMicroBatch, fixed_.plan.micro_batch, batch_divisors)) {
          plan_.micro_batch = b;
          if (!let_pass(rules_.micro_batch)) continue;
          if (!walk_pipelines(gpu_divisors)) break;
        }
      }
    }
  }

  // Returns the values of etp to try, as a plan stores them: 0 is tp. Experts are cut like the
  // dense layers or not at all, as today's recipes do. Other values must be pinned.
  std::vector<Int> expert_cuts(Int tp) const {
    if (fixed_.has(kEtp)) return {fixed_.plan.etp == tp ? 0 : fixed_.plan.etp};
    return spec_.is_moe() && tp > 1 ? std::vector<Int>{0, 1} : std::vector<Int>{0};
  }

  bool let_pass(const LoopRules::Rules& rules) const {
    return std::all_of(rules.begin(), rules.end(),
                       [&](const PlanRule* rule) { return rule->holds(plan_, job_); });
  }
  template <typename T>
  bool allowed(PlanField field, T pinned, T value) const {
    return !fixed_.has(field) || pinned == value;
  }
  std::vector<Int> choices(PlanField field, Int pinned, const std::vector<Int>& all) const {
    return fixed_.has(field) ? std::vector<Int>{pinned} : all;
  }

  // Returns false if one layer with this micro-batch does not fit in a GPU; larger micro-batches
  // need no check then.
  bool walk_pipelines(const std::vector<Int>& gpu_divisors) {
    bool have_costs = false;
    const Int rest = gpus_ / (plan_.tp * plan_.cp);
    for (const Int pp : gpu_divisors) {
      if (!allowed(kPp, fixed_.plan.pp, pp)) continue;
      // Every stage must have a layer, unless a pinned split says which have none.
      if (rest % pp != 0 || (pp > spec_.layers && !fixed_.has(kStageLayers))) continue;
      plan_.pp = pp;
      plan_.dp = rest / pp;
      if (!allowed(kDp, fixed_.plan.dp, plan_.dp)) continue;
      if (!let_pass(rules_.pipeline)) continue;
      if (micro_batches_ > 0 && micro_batches_ != plan_.micro_batches(model_.global_batch())) {
        continue;
      }
      if (!have_costs) {
        costs_ = model_.shape_costs(plan_);
        least_time_ = model_.least_time(plan_, costs_);
        have_costs = true;
        if (feasible_ > 0 && costs_.activations.working > model_.capacity()) return false;
      }
      walk_schedules();
      if (stops_at_first_ && searched_ > 0) return false;
    }
    return true;
  }

  void walk_schedules() {
    if (fixed_.has(kStageLayers) && !fixed_.plan.stage_layers.empty()) return walk_pinned_split();
    const bool any_schedule = !fixed_.has(kSchedule);
    if (any_schedule || fixed_.plan.schedule != ScheduleKind::kInterleaved) {
      plan_.schedule = any_schedule ? ScheduleKind::k1F1B : fixed_.plan.schedule;
      plan_.vp = 1;
      if (allowed<Int>(kVp, fixed_.plan.vp, 1) && let_pass(rules_.schedule)) walk_splits(1);
    }
    if (any_schedule || fixed_.plan.schedule == ScheduleKind::kInterleaved) {
      plan_.schedule = ScheduleKind::kInterleaved;
      const Int most = fixed_.has(kVp) ? kMaxChunks : kMostVirtualStages;
      // The embedding and the head may each take the place of a layer, with a chunk of their own.
      for (Int vp = 2; vp <= std::min((spec_.layers + 2) / plan_.pp, most); ++vp) {
        plan_.vp = vp;
        // If two virtual stages are refused, more are refused too.
        if (!let_pass(rules_.schedule)) return;
        if (allowed(kVp, fixed_.plan.vp, vp)) walk_splits(vp);
      }
    }
  }

  // Tries the equal split, and the balanced split if it differs and leaves no chunk empty. An
  // engine that cuts stages by work needs no split.
  void walk_splits(Int vp) {
    plan_.vp = vp;
    const Int chunks = plan_.pp * vp;
    const StageSplit unsplit = model_.unsplit(chunks);
    const bool needs_none = let_pass(rules_.split);
    if (needs_none) walk_zero(unsplit, true);
    if (chunks == 1 || unsplit.by_work || fixed_.has(kStageLayers)) return;
    const StageSplit balanced = model_.balanced(plan_, costs_);
    const Int thinnest = balanced.middle - (balanced.thinner > 0 ? 1 : 0);
    if (needs_none && balanced == unsplit) return;
    if (chunks == 2 || thinnest > 0) walk_zero(balanced, false);
  }

  // A pinned split has no closed form, so it is simulated once per ZeRO stage.
  void walk_pinned_split() {
    const ParallelPlan pinned = with_implied_stages(fixed_, plan_.pp);
    plan_.vp = pinned.vp;
    plan_.schedule = pinned.schedule;
    plan_.stage_layers = pinned.stage_layers;
    if (let_pass(rules_.schedule) && let_pass(rules_.split)) {
      for (plan_.zero = 0; plan_.zero <= 3; ++plan_.zero) {
        if (!zero_allowed()) continue;
        const StepEstimate estimate = model_.predict(plan_);
        const auto candidate = [&] { return Candidate{plan_, {}, true, searched_, estimate.time}; };
        if (counts(estimate.memory.total(), candidate)) offer(candidate());
      }
    }
    plan_.stage_layers.clear();
  }

  bool zero_allowed() const {
    if (!allowed(kZero, fixed_.plan.zero, plan_.zero)) return false;
    // ZeRO over one rank shards nothing. It is tried only if it is pinned.
    if (!fixed_.has(kZero) && plan_.zero > 0 && !has_replicas()) return false;
    return let_pass(rules_.zero);
  }

  // Whether several ranks hold the same parameters: dense layers, or experts that are cut less.
  bool has_replicas() const {
    return plan_.dp * plan_.cp > 1 || (spec_.is_moe() && plan_.expert_dp() > 1);
  }

  void walk_zero(const StageSplit& split, bool equal) {
    for (plan_.zero = 0; plan_.zero <= 3; ++plan_.zero) {
      if (!zero_allowed()) continue;
      const auto candidate = [&] {
        return Candidate{plan_, split, equal, searched_,
                         model_.closed_form(plan_, costs_, split).time};
      };
      if (!counts(model_.closed_form_memory(plan_, costs_, split), candidate)) continue;
      // Most plans need no time: they are too slow even without bubble and reduction.
      const bool bounded =
          plan_.schedule == ScheduleKind::k1F1B || plan_.schedule == ScheduleKind::kInterleaved;
      if (!bounded || least_time_ < shortlist_.bound()) offer(candidate());
    }
  }

  // Counts a plan that needs this memory. Returns whether it fits. Until a plan fits, keeps the one
  // that needs least, as `candidate` makes it.
  template <typename MakeCandidate>
  bool counts(Bytes need, const MakeCandidate& candidate) {
    ++searched_;
    if (progress_ && searched_ % kProgressEvery == 0) progress_(searched_);
    if (need <= model_.budget()) {
      ++feasible_;
      return true;
    }
    if (feasible_ == 0 && (least_bytes_.v <= 0 || need < least_bytes_)) {
      least_bytes_ = need;
      least_memory_ = candidate();
    }
    return false;
  }

  void offer(const Candidate& candidate) {
    if (candidate.time < shortlist_.bound()) shortlist_.offer(candidate);
  }

  const StepModel& model_;
  const ModelSpec& spec_;
  const PartialPlan& fixed_;
  Int micro_batches_;
  const std::function<void(Int)>& progress_;
  Shortlist& shortlist_;
  bool stops_at_first_;
  Int gpus_;
  PlanJob job_;
  LoopRules rules_;
  ParallelPlan plan_;  // complete up to the current loop
  ShapeCosts costs_;
  Seconds least_time_;  // of all plans with these costs
  Int searched_ = 0;
  Int feasible_ = 0;
  Candidate least_memory_;
  Bytes least_bytes_;
};

RankedPlan play_out(const StepModel& model, const Candidate& candidate) {
  RankedPlan ranked{candidate.plan, {}};
  if (!candidate.equal)
    ranked.plan.stage_layers = expand(candidate.split, candidate.plan.pp * candidate.plan.vp);
  ranked.estimate = model.predict(ranked.plan);
  return ranked;
}

}  // namespace

SearchResult search(const StepModel& model, const SearchRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  // More candidates than are reported, because the simulation may reorder near-ties. Most
  // candidates are needed for layouts with few micro-batches on uneven virtual stages, which the
  // closed form misjudges by some percent.
  const auto top = static_cast<std::size_t>(std::max<Int>(1, request.top));
  constexpr std::size_t kSpare = 6, kVariants = 24;
  const std::size_t size = request.variants ? top + kSpare * kVariants : (top + kSpare) * kVariants;
  Shortlist shortlist(size, request.variants ? size : kVariants);
  Walk walk(model, request, shortlist);
  walk.run();

  struct Played {
    RankedPlan ranked;
    Int found;
  };
  std::vector<Played> played;
  for (const Candidate& candidate : shortlist.kept()) {
    RankedPlan ranked = play_out(model, candidate);
    if (fits(model, ranked.estimate)) played.push_back({std::move(ranked), candidate.found});
  }
  std::stable_sort(played.begin(), played.end(), [](const Played& a, const Played& b) {
    return a.ranked.estimate.time < b.ranked.estimate.time;
  });

  SearchResult result;
  result.searched = walk.searched();
  result.feasible = walk.feasible();
  for (std::size_t i = 0; i < played.size() && result.plans.size() < top; ++i) {
    const ParallelPlan& plan = played[i].ranked.plan;
    auto listed = [&](const RankedPlan& r) { return same_layout(r.plan, plan); };
    if (request.variants) {
      result.plans.push_back(played[i].ranked);
    } else if (std::none_of(result.plans.begin(), result.plans.end(), listed)) {
      // Report the simplest variant that is about as fast as the layout's fastest variant.
      std::size_t pick = i;
      const Seconds limit = played[i].ranked.estimate.time * (1 + kWorthTheTrouble);
      for (std::size_t k = i + 1; k < played.size(); ++k) {
        if (played[k].ranked.estimate.time > limit) break;
        if (same_layout(played[k].ranked.plan, plan) && played[k].found < played[pick].found)
          pick = k;
      }
      result.plans.push_back(played[pick].ranked);
    }
  }
  std::stable_sort(
      result.plans.begin(), result.plans.end(),
      [](const RankedPlan& a, const RankedPlan& b) { return a.estimate.time < b.estimate.time; });
  for (const RankedPlan& reported : result.plans)
    COPUS_CHECK(model.validate(reported.plan).has_value());
  if (result.plans.empty() && result.searched > 0) {
    result.closest =
        play_out(model, shortlist.kept().empty() ? walk.least_memory() : shortlist.kept().front());
  }
  result.search_time = seconds_since(start);
  return result;
}

PlanJob plan_job(const StepModel& model) {
  return {model.model(),        model.cluster(),           model.seq_len(),
          model.global_batch(), model.options().stage_cut, model.limits()};
}

bool has_plan(const StepModel& model, const SearchRequest& request) {
  Shortlist shortlist(1, 1);
  Walk walk(model, request, shortlist, true);
  walk.run();
  return walk.searched() > 0;
}

ParallelPlan with_implied_stages(const PartialPlan& fixed, std::int64_t pp) {
  ParallelPlan plan = fixed.plan;
  const auto chunks = static_cast<Int>(plan.stage_layers.size());
  if (!fixed.has(kStageLayers) || fixed.has(kVp) || chunks == 0 || chunks % pp != 0) return plan;
  plan.vp = chunks / pp;
  if (plan.vp > 1 && !fixed.has(kSchedule)) plan.schedule = ScheduleKind::kInterleaved;
  return plan;
}

std::string explain_difference(const RankedPlan& best, const RankedPlan& next) {
  const StepBreakdown& a = best.estimate.breakdown;
  const StepBreakdown& b = next.estimate.breakdown;
  std::vector<std::pair<Seconds, std::string_view>> parts;
  for (const StepPart& part : kStepParts) {
    if (!part.cause.empty()) parts.emplace_back(b.*part.time - a.*part.time, part.cause);
  }
  std::stable_sort(parts.begin(), parts.end(), [](const auto& x, const auto& y) {
    return std::abs(x.first.v) > std::abs(y.first.v);
  });
  const double gain = next.estimate.time / best.estimate.time - 1;
  std::string text = fmt::format("{} beats {} by {:.1f}%", short_name(best.plan),
                                 short_name(next.plan), 100 * gain);
  std::string saved, paid;
  for (const auto& [difference, name] : parts) {
    const Seconds size(std::abs(difference.v));
    if (size < 0.001 * best.estimate.time) continue;
    std::string& list = difference > Seconds() ? saved : paid;
    list += fmt::format("{}{} on {}", list.empty() ? "" : ", ", human_seconds(size), name);
  }
  if (!saved.empty()) text += ": saves " + saved;
  if (!paid.empty()) text += (saved.empty() ? ": pays " : "; pays ") + paid;
  return text;
}

}  // namespace copus
