#include "copus/tuner/usual.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace copus {
namespace {

using Int = std::int64_t;
using enum PlanField;

constexpr Int kWidestTp = 8;
constexpr Int kShortestPiece = 1024;  // tokens of a sequence that cp leaves on a rank

struct Layout {
  Int tp = 1, pp = 1, cp = 1;
};

// The layouts that a rule tries, in its order: tp and pp grow inside each cp.
class Layouts {
 public:
  Layouts(const StepModel& model, const PartialPlan& fixed, const UsualRule& rule)
      : model_(model), fixed_(fixed) {
    const Int gpus = model.cluster().gpus();
    for (const Int cp : sizes(rule, kCp, fixed.plan.cp, gpus, model.seq_len() / kShortestPiece)) {
      Layout grown;
      grown.cp = cp;
      add(grown);
      for (const PlanField field : rule.grow) {
        if (field == kCp) continue;
        Int Layout::*const size = field == kTp ? &Layout::tp : &Layout::pp;
        const Int pinned = field == kTp ? fixed.plan.tp : fixed.plan.pp;
        const Int most = field == kTp ? std::min(model.cluster().gpus_per_node, kWidestTp) : gpus;
        Layout widest = grown;
        for (const Int n : sizes(rule, field, pinned, gpus, most)) {
          Layout next = grown;
          next.*size = n;
          if (gpus % (next.tp * next.pp * next.cp) != 0 || !possible(next)) continue;
          add(next);
          widest = next;
        }
        grown = widest;
      }
    }
  }

  const std::vector<Layout>& list() const { return list_; }

 private:
  void add(const Layout& layout) {
    const auto pinned = [&](PlanField field, Int value, Int given) {
      return !fixed_.has(field) || value == given;
    };
    if (pinned(kTp, layout.tp, fixed_.plan.tp) && pinned(kPp, layout.pp, fixed_.plan.pp) &&
        pinned(kCp, layout.cp, fixed_.plan.cp)) {
      list_.push_back(layout);
    }
  }

  bool possible(const Layout& layout) const {
    ParallelPlan plan;
    plan.tp = layout.tp;
    plan.cp = layout.cp;
    return broken_rule({kTp, kCp}, plan, plan_job(model_)) == nullptr;
  }

  std::vector<Int> sizes(const UsualRule& rule, PlanField field, Int pinned, Int gpus,
                         Int most) const {
    if (fixed_.has(field)) return {pinned};
    const bool grows = std::find(rule.grow.begin(), rule.grow.end(), field) != rule.grow.end();
    std::vector<Int> divisors;
    for (Int n = 1; n <= (grows ? std::min(gpus, std::max<Int>(1, most)) : 1); ++n) {
      if (gpus % n == 0) divisors.push_back(n);
    }
    return divisors;
  }

  const StepModel& model_;
  const PartialPlan& fixed_;
  std::vector<Layout> list_;
};

// Returns the best plan of this layout with one of these kinds of recompute.
std::optional<RankedPlan> best_of(const StepModel& model, const SearchRequest& pinned,
                                  const Layout& layout, int zero,
                                  std::initializer_list<Recompute> recomputes) {
  const EngineLimits* limits = model.limits();
  const Int model_parallel = layout.tp * layout.pp * layout.cp;
  std::optional<RankedPlan> best;
  for (const Recompute recompute : recomputes) {
    ParallelPlan usual;
    usual.tp = layout.tp;
    usual.pp = layout.pp;
    usual.cp = layout.cp;
    usual.recompute = recompute;
    usual.zero = model.cluster().gpus() / model_parallel * layout.cp > 1 ? zero : 0;
    usual.sp = layout.tp > 1 && (limits == nullptr || limits->sp.has(1));
    const PartialPlan& fixed = pinned.fixed;
    if (fixed.has(kRecompute) && fixed.plan.recompute != recompute) continue;
    SearchRequest request;
    request.fixed = fixed;
    request.micro_batches = pinned.micro_batches;
    request.top = 1;
    for (const PlanField field : {kTp, kPp, kCp, kRecompute, kZero, kSp}) {
      if (!fixed.has(field)) request.fixed.pin({field}, usual);
    }
    SearchResult found = search(model, request);
    if (found.plans.empty()) continue;
    if (!best || found.plans.front().estimate.time < best->estimate.time)
      best = std::move(found.plans.front());
  }
  return best;
}

std::optional<RankedPlan> first_that_fits(const StepModel& model, const SearchRequest& pinned,
                                          const UsualRule& rule, const Layouts& layouts,
                                          std::initializer_list<Recompute> recomputes) {
  for (const Layout& layout : layouts.list()) {
    for (const int zero : rule.zero) {
      std::optional<RankedPlan> best = best_of(model, pinned, layout, zero, recomputes);
      if (best) return best;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<RankedPlan> usual_plan(const StepModel& model, const SearchRequest& pinned,
                                     const UsualRule& rule) {
  const Layouts layouts(model, pinned.fixed, rule);
  // A small layout that recomputes may be faster than a larger one that does not, or slower. The
  // rule gets the better of the two.
  std::optional<RankedPlan> kept =
      first_that_fits(model, pinned, rule, layouts, {Recompute::kNone, Recompute::kSelective});
  std::optional<RankedPlan> recomputed =
      first_that_fits(model, pinned, rule, layouts, {Recompute::kFull});
  if (!kept || (recomputed && recomputed->estimate.time < kept->estimate.time)) return recomputed;
  return kept;
}

}  // namespace copus
