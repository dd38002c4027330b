#include "copus/tuner/usual.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
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

// Returns the sizes of one dimension that the rule allows, smallest first.
std::vector<Int> sizes(const StepModel& model, const PartialPlan& fixed, const UsualRule& rule,
                       PlanField field, Int pinned, Int most) {
  if (fixed.has(field)) return {pinned};
  const Int gpus = model.cluster().gpus();
  const bool grows = std::find(rule.grow.begin(), rule.grow.end(), field) != rule.grow.end();
  std::vector<Int> divisors;
  for (Int n = 1; n <= (grows ? std::clamp<Int>(most, 1, gpus) : 1); ++n) {
    if (gpus % n == 0) divisors.push_back(n);
  }
  return divisors;
}

std::optional<RankedPlan> faster(std::optional<RankedPlan> a, std::optional<RankedPlan> b) {
  if (!a || (b && b->estimate.time < a->estimate.time)) return b;
  return a;
}

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
    if (!found.plans.empty()) best = faster(std::move(best), std::move(found.plans.front()));
  }
  return best;
}

// Returns the best plan of this layout, with the first ZeRO stage that fits.
std::optional<RankedPlan> first_stage(const StepModel& model, const SearchRequest& pinned,
                                      const Layout& layout, const UsualRule& rule) {
  for (const int zero : rule.zero) {
    std::optional<RankedPlan> best = best_of(
        model, pinned, layout, zero, {Recompute::kNone, Recompute::kSelective, Recompute::kFull});
    if (best) return best;
  }
  return std::nullopt;
}

}  // namespace

std::optional<RankedPlan> usual_plan(const StepModel& model, const SearchRequest& pinned,
                                     const UsualRule& rule) {
  const PartialPlan& fixed = pinned.fixed;
  const ClusterSpec& cluster = model.cluster();
  const std::vector<Int> tp_sizes =
      sizes(model, fixed, rule, kTp, fixed.plan.tp, std::min(cluster.gpus_per_node, kWidestTp));
  const std::vector<Int> pp_sizes =
      sizes(model, fixed, rule, kPp, fixed.plan.pp, std::min(cluster.gpus(), kMaxPipeline));
  const std::vector<Int> cp_sizes =
      sizes(model, fixed, rule, kCp, fixed.plan.cp, model.seq_len() / kShortestPiece);
  std::optional<RankedPlan> best;
  for (const Int cp : cp_sizes) {
    for (const Int pp : pp_sizes) {
      for (const Int tp : tp_sizes) {
        if (cluster.gpus() % (tp * pp * cp) != 0) continue;
        best = faster(std::move(best), first_stage(model, pinned, {tp, pp, cp}, rule));
        if (best && rule.first_that_fits) return best;
      }
    }
    if (best) break;  // longer sequences only are a reason to split them
  }
  return best;
}

}  // namespace copus
