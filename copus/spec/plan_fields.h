// The fields of a plan: their names, and their values as text and as JSON. Text, JSON, pins and
// error messages of plans all use these functions.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "copus/spec/parallel_plan.h"

namespace copus {

constexpr std::array<PlanField, kPlanFieldCount> kPlanFields = {
    PlanField::kTp,         PlanField::kCp,        PlanField::kPp,  PlanField::kVp,
    PlanField::kDp,         PlanField::kEp,        PlanField::kEtp, PlanField::kMicroBatch,
    PlanField::kZero,       PlanField::kRecompute, PlanField::kSp,  PlanField::kSchedule,
    PlanField::kStageLayers};

inline constexpr std::array kRecomputes = {Recompute::kNone, Recompute::kSelective,
                                           Recompute::kFull};
inline constexpr std::array kSchedules = {ScheduleKind::kGPipe, ScheduleKind::k1F1B,
                                          ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble};

// Returns the short name that text uses: "mb", "z", "split".
std::string_view short_name_of(PlanField field);
// Finds a field by its name_of() or its short_name_of().
std::optional<PlanField> find_plan_field(std::string_view name);

// Reads a value as value_text() prints it.
Result<void> parse_value(ParallelPlan& plan, PlanField field, std::string_view text);

Json value_to_json(const ParallelPlan& plan, PlanField field);
// Reads the field from the object of `from`, which collects errors. REQUIRES: the object has the
// field.
void value_from_json(ParallelPlan& plan, PlanField field, FieldReader& from,
                     const std::string& where);

void copy_value(PlanField field, const ParallelPlan& from, ParallelPlan& to);
// Whether both plans have the same value. An empty stage_layers equals a list of equal numbers.
bool same_value(PlanField field, const ParallelPlan& a, const ParallelPlan& b);

// Returns the plan with etp as it is stored: 0 if it equals tp. Equal plans are then equal values.
ParallelPlan with_settled_etp(ParallelPlan plan);

// Returns the schedule of a plan that does not state one: interleaved with virtual stages, else
// 1f1b.
ScheduleKind implied_schedule(const ParallelPlan& plan);

}  // namespace copus
