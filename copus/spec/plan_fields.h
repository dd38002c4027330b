// The fields of a plan, one row each: what a field is called, and its value as text and as JSON.
// Text, JSON, pins and errors of plans all follow from these functions.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "copus/spec/parallel_plan.h"

namespace copus {

constexpr std::array<PlanField, kPlanFieldCount> kPlanFields = {
    PlanField::kTp,        PlanField::kCp, PlanField::kPp,         PlanField::kVp,
    PlanField::kDp,        PlanField::kEp, PlanField::kMicroBatch, PlanField::kZero,
    PlanField::kRecompute, PlanField::kSp, PlanField::kSchedule,   PlanField::kStageLayers};

// What text calls it: "mb", "z", "split". name_of() is understood too.
std::string_view short_name_of(PlanField field);
std::optional<PlanField> find_plan_field(std::string_view name);

// Reads what value_text() prints.
Result<void> parse_value(ParallelPlan& plan, PlanField field, std::string_view text);

Json value_to_json(const ParallelPlan& plan, PlanField field);
// The field of the object that is read. REQUIRES: it has it.
void value_from_json(ParallelPlan& plan, PlanField field, FieldReader& from,
                     const std::string& where);

void copy_value(PlanField field, const ParallelPlan& from, ParallelPlan& to);
// Equal stages may be written out or left to be equal.
bool same_value(PlanField field, const ParallelPlan& a, const ParallelPlan& b);

// Virtual stages mean nothing but interleaving, so stating them is enough.
ScheduleKind implied_schedule(const ParallelPlan& plan);

}  // namespace copus
