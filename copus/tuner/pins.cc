#include "copus/tuner/pins.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "copus/base/text.h"
#include "copus/spec/plan_fields.h"
#include "copus/spec/plan_rules.h"

namespace copus {
namespace {

using Int = std::int64_t;

// The order in which pins are tried if several pins are at fault together. The error suggests to
// change the first pin for which another value leaves a plan. Fields that depend on the layout come
// before the layout itself.
constexpr PlanField kFirstToChange[] = {
    PlanField::kStageLayers, PlanField::kVp,  PlanField::kZero, PlanField::kSchedule,
    PlanField::kSp,          PlanField::kEtp, PlanField::kEp,   PlanField::kMicroBatch,
    PlanField::kRecompute,   PlanField::kCp,  PlanField::kDp,   PlanField::kPp,
    PlanField::kTp};

bool leave_a_plan(const StepModel& model, const PartialPlan& pins, Int micro_batches = 0) {
  SearchRequest request;
  request.fixed = pins;
  request.micro_batches = micro_batches;
  return has_plan(model, request);
}

// Returns a smallest set of pins that leaves no plan: one pin, two pins, or a set from which no pin
// can be dropped. REQUIRES: all pins together leave no plan, and without pins there is a plan.
PlanFields at_fault(const StepModel& model, const PartialPlan& pins) {
  const auto impossible = [&](PlanFields fields) {
    return !leave_a_plan(model, pins.only(fields));
  };
  const std::vector<PlanField> given = pins.given.list();
  for (const PlanField one : given) {
    if (impossible({one})) return {one};
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (impossible({given[k], given[i]})) return {given[k], given[i]};
    }
  }
  PlanFields left = pins.given;
  for (const PlanField field : kFirstToChange) {
    if (!left.has(field)) continue;
    PlanFields without = left;
    without.remove(field);
    if (impossible(without)) left = without;
  }
  return left;
}

// Returns the divisors of `n` nearest to `got`, nearest first, without `got` itself.
std::vector<std::string> near_divisors(Int n, Int got) {
  constexpr std::size_t kMost = 64;  // limits the work, because callers try each divisor
  std::vector<Int> found;
  for (Int d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    found.push_back(d);
    if (d != n / d) found.push_back(n / d);
  }
  std::sort(found.begin(), found.end(), [&](Int a, Int b) {
    return std::pair(std::abs(a - got), a) < std::pair(std::abs(b - got), b);
  });
  std::vector<std::string> texts;
  for (const Int d : found) {
    if (d != got && texts.size() < kMost) texts.push_back(std::to_string(d));
  }
  return texts;
}

// Returns other values for the field, nearest first.
std::vector<std::string> alternatives(const StepModel& model, PlanField field,
                                      const PartialPlan& pins) {
  const ParallelPlan& pinned = pins.plan;
  const Int gpus = model.cluster().gpus();
  switch (field) {
    case PlanField::kTp:
      return near_divisors(gpus, pinned.tp);
    case PlanField::kCp:
      return near_divisors(gpus, pinned.cp);
    case PlanField::kPp:
      return near_divisors(gpus, pinned.pp);
    case PlanField::kDp:
      return near_divisors(gpus, pinned.dp);
    case PlanField::kEp:
      return near_divisors(model.model().is_moe() ? model.model().moe.experts : 1, pinned.ep);
    case PlanField::kEtp:
      return near_divisors(pins.has(PlanField::kTp) ? pinned.tp : gpus, pinned.expert_tp());
    case PlanField::kMicroBatch:
      return near_divisors(model.global_batch(), pinned.micro_batch);
    case PlanField::kVp: {
      std::vector<std::string> nearest;
      const Int most = std::min(model.model().layers, kMaxChunks);
      for (Int distance = 1; distance <= most + pinned.vp; ++distance) {
        for (const Int vp : {pinned.vp - distance, pinned.vp + distance}) {
          if (vp >= 1 && vp <= most) nearest.push_back(std::to_string(vp));
        }
      }
      return nearest;
    }
    case PlanField::kZero:
      return {"1", "0", "2", "3"};
    case PlanField::kRecompute:
      return {"none", "selective", "full"};
    case PlanField::kSp:
      return {pinned.sp ? "0" : "1"};
    case PlanField::kSchedule:
      return {"1f1b", "interleaved", "zero_bubble", "gpipe"};
    case PlanField::kStageLayers:
      break;
  }
  return {};
}

// Returns the values nearest to the pinned value for which the other pins leave a plan.
std::vector<std::string> right_values(const StepModel& model, const PartialPlan& pins,
                                      PlanField field) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> right;
  for (const std::string& text : alternatives(model, field, pins)) {
    PartialPlan other = pins.only(pins.given);
    if (!parse_value(other.plan, field, text)) continue;
    if (!other.has(PlanField::kSchedule)) other.plan.schedule = implied_schedule(other.plan);
    if (leave_a_plan(model, other)) right.push_back(text);
    if (right.size() == kShown) break;
  }
  return right;
}

// Returns what to add to the error if only the framework's limits forbid the pins.
std::string because_of_limits(const StepModel& model, const PartialPlan& pins) {
  if (model.limits() == nullptr) return "";
  const StepModel unlimited(model.model(), model.cluster(), model.seq_len(), model.global_batch(),
                            model.options());
  if (!leave_a_plan(unlimited, pins)) return "";
  return fmt::format(", because of the limits of {}", model.limits()->engine);
}

struct PlanChange {
  PlanField field;
  std::vector<std::string> right;
};

// Returns the pin to change and its new values. Prefers a change that lets all other pins stay. If
// there is none, returns a change that lets the other pins at fault stay.
PlanChange smallest_change(const StepModel& model, const PartialPlan& pins, PlanFields guilty) {
  std::optional<PlanField> first;
  for (const PartialPlan& kept : {pins, pins.only(guilty)}) {
    for (const PlanField field : kFirstToChange) {
      if (!guilty.has(field)) continue;
      if (!first) first = field;
      std::vector<std::string> right = right_values(model, kept, field);
      if (!right.empty()) return {field, std::move(right)};
    }
  }
  return {*first, {}};
}

// Returns ", because tp*dp = 16 does not divide …" if all fields at fault are among `factors` and
// their product does not divide `n`. Else returns an empty text.
std::string because_of_product(const ParallelPlan& plan, PlanFields guilty, PlanFields factors,
                               Int n, const std::string& what) {
  if (!factors.has_all(guilty)) return "";
  double product = 1;
  std::vector<std::string_view> names;
  for (const PlanField field : guilty.list()) {
    product *= static_cast<double>(value_to_json(plan, field).get<Int>());
    names.push_back(name_of(field));
  }
  const auto whole = static_cast<double>(n);
  if (product <= whole && n % static_cast<Int>(product) == 0) return "";
  const std::string got =
      names.size() == 1 ? "it" : fmt::format("{} = {:.0f}", fmt::join(names, "*"), product);
  return fmt::format(", because {} does not divide {}", got, what);
}

Error pins_leave_nothing(const StepModel& model, const PartialPlan& pins, PlanFields guilty) {
  const PartialPlan part = pins.only(guilty);
  const ParallelPlan plan = with_implied_stages(part, part.plan.pp);
  // If a single rule forbids the pins, the message of that rule says most.
  PlanFields known = guilty;
  if (guilty.has_all({PlanField::kPp, PlanField::kStageLayers})) known.add(PlanField::kVp);
  const PlanJob job = plan_job(model);
  if (const PlanRule* broken = broken_rule(known, plan, job); broken != nullptr) {
    const Error why = broken->why(plan, job);
    const std::optional<PlanField> field = find_plan_field(why.field);
    if (field && guilty.has(*field)) return why;
  }
  if (const Result<void> ring = check_ring_attention(model.options(), model.cluster().gpu, plan.cp);
      !ring) {
    return ring.error();
  }
  const PlanChange change = smallest_change(model, pins, guilty);
  const PlanField field = change.field;
  std::string others;
  for (const PlanField each : guilty.list()) {
    if (each == field) continue;
    others += fmt::format("{}{}={}", others.empty() ? " with " : " and ", name_of(each),
                          value_text(plan, each));
  }
  using enum PlanField;
  std::string because =
      because_of_product(plan, guilty, {kTp, kCp, kPp, kDp}, model.cluster().gpus(),
                         fmt::format("the cluster's {}", counted(model.cluster().gpus(), "GPU")));
  if (because.empty()) {
    because = because_of_product(plan, guilty, {kDp, kMicroBatch}, model.global_batch(),
                                 fmt::format("the batch of {}", model.global_batch()));
  }
  if (because.empty()) because = because_of_limits(model, part);
  return field_error(name_of(field), "got {}{}; want {}{}", value_text(plan, field), others,
                     change.right.empty() ? "another" : join_or(change.right), because);
}

// REQUIRES: without --micro-batches, the pins leave a plan.
Error micro_batches_leave_nothing(const StepModel& model, const SearchRequest& request) {
  const std::string_view option = "--micro-batches";
  const Int count = request.micro_batches, batch = model.global_batch();
  if (batch % count != 0) {
    return field_error(option, "got {}; want a divisor of the batch of {}", count, batch);
  }
  const ParallelPlan& plan = request.fixed.plan;
  const bool dp_pinned = request.fixed.has(PlanField::kDp);
  const bool size_pinned = request.fixed.has(PlanField::kMicroBatch);
  const Int at_once = batch / count, pinned = plan.dp * plan.micro_batch;
  if ((dp_pinned && size_pinned && at_once != pinned) || at_once % pinned != 0) {
    return field_error(option, "got {} with dp*micro_batch = {}{} by --fix; want {}{}", count,
                       pinned, dp_pinned && size_pinned ? "" : " or a multiple",
                       dp_pinned && size_pinned ? "" : "a divisor of ", batch / pinned);
  }
  const Int free_gpus = model.cluster().gpus() / (plan.tp * plan.cp * plan.pp * plan.dp);
  if (size_pinned && !dp_pinned && free_gpus % (at_once / plan.micro_batch) != 0) {
    return field_error(
        option, "got {} with micro_batch={} by --fix, which needs dp={}; want a dp that divides {}",
        count, plan.micro_batch, at_once / plan.micro_batch, counted(free_gpus, "GPU"));
  }
  std::vector<std::string> right;
  for (const std::string& text : near_divisors(batch, count)) {
    if (leave_a_plan(model, request.fixed, std::stoll(text))) right.push_back(text);
    if (right.size() == 3) break;
  }
  return field_error(option, "got {}, impossible with the layouts that --fix allows; want {}",
                     count, right.empty() ? "another" : join_or(right));
}

}  // namespace

Result<void> check_pins(const StepModel& model, const SearchRequest& request) {
  if (leave_a_plan(model, request.fixed)) return micro_batches_leave_nothing(model, request);
  if (!leave_a_plan(model, {})) return {};
  const PlanFields guilty = at_fault(model, request.fixed);
  return error_in("--fix", pins_leave_nothing(model, request.fixed, guilty));
}

}  // namespace copus
