// Reads and prints whole plans as text and as JSON.
#include <algorithm>
#include <iterator>

#include "copus/base/text.h"
#include "copus/spec/parallel_plan.h"
#include "copus/spec/plan_fields.h"

namespace copus {
namespace {

// How many characters of the user's text an error shows.
constexpr std::size_t kShownPart = 40;
constexpr std::size_t kShownPlan = 80;

// The values that have a word of their own in a short name. Other values follow the short name of
// their field: dp2, z1, split8x3-4.
struct Word {
  std::string_view word;
  PlanField field;
  std::string_view value;
};
constexpr Word kWords[] = {
    {"rc-none", PlanField::kRecompute, "none"},
    {"rc-sel", PlanField::kRecompute, "selective"},
    {"rc-full", PlanField::kRecompute, "full"},
    {"sp", PlanField::kSp, "1"},
    {"gpipe", PlanField::kSchedule, "gpipe"},
    {"1f1b", PlanField::kSchedule, "1f1b"},
    {"interleaved", PlanField::kSchedule, "interleaved"},
    {"zb", PlanField::kSchedule, "zero_bubble"},
};

// Both lists are in the order of a short name.
constexpr PlanField kAlwaysNamed[] = {PlanField::kDp, PlanField::kTp, PlanField::kPp,
                                      PlanField::kMicroBatch};
constexpr PlanField kNamedUnlessDefault[] = {
    PlanField::kCp, PlanField::kEp,       PlanField::kEtp,
    PlanField::kVp, PlanField::kZero,     PlanField::kRecompute,
    PlanField::kSp, PlanField::kSchedule, PlanField::kStageLayers};

std::string name_part(const ParallelPlan& plan, PlanField field) {
  const std::string value = value_text(plan, field);
  for (const Word& word : kWords) {
    if (field == word.field && value == word.value) return std::string(word.word);
  }
  return fmt::format("{}{}", short_name_of(field), value);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Collects the parts of a plan, each at most once.
struct StatedParts {
  std::string_view option;
  PartialPlan stated;

  Result<void> add(PlanField field, std::string_view value) {
    if (stated.has(field)) {
      return field_error(option, "got {} twice; want each key once", name_of(field));
    }
    if (const Result<void> parsed = parse_value(stated.plan, field, value); !parsed) {
      return error_in(option, parsed.error());
    }
    stated.given.add(field);
    return {};
  }
};

// Whether the text states a whole plan as short_name() prints it. A field that such a text does not
// name has its default.
bool is_whole(const PartialPlan& stated) {
  return std::all_of(std::begin(kAlwaysNamed), std::end(kAlwaysNamed),
                     [&](PlanField field) { return stated.has(field); });
}

void settle(PartialPlan& partial) {
  if (!partial.has(PlanField::kSchedule)) partial.plan.schedule = implied_schedule(partial.plan);
  if (partial.has(PlanField::kTp)) partial.plan = with_settled_etp(std::move(partial.plan));
}

Error mixed_forms(std::string_view text, std::string_view option) {
  return field_error(option,
                     "got {:?}, which mixes two forms; want one of them, as tp=2,pp=4 or tp2.pp4",
                     text.substr(0, kShownPlan));
}

// Reads one pair of "tp=2,pp=4": `part` is "tp=2".
Result<void> add_pair(StatedParts& parts, std::string_view part, std::string_view text) {
  const std::size_t equals = part.find('=');
  if (equals == std::string_view::npos) {
    const std::size_t digits = part.find_first_of("0123456789");
    if (digits != std::string_view::npos && find_plan_field(part.substr(0, digits))) {
      return mixed_forms(text, parts.option);
    }
    return field_error(parts.option, "got {:?}; want KEY=VALUE[,KEY=VALUE…], as tp=2,pp=4",
                       part.substr(0, kShownPart));
  }
  const std::string_view key = trimmed(part.substr(0, equals));
  const std::string_view value = trimmed(part.substr(equals + 1));
  const std::optional<PlanField> field = find_plan_field(key);
  if (!field) {
    std::vector<std::string> names;
    for (const PlanField each : kPlanFields) {
      names.emplace_back(each == PlanField::kStageLayers ? short_name_of(each) : name_of(each));
    }
    const std::vector<std::string> nearest = nearest_names(key.substr(0, kShownPart), names);
    return field_error(parts.option, "got the key {:?}; want {}", key.substr(0, kShownPart),
                       join_or(nearest.empty() ? names : nearest));
  }
  // No value has a dot before a letter, so such a text mixes both forms.
  const std::size_t dot = value.find('.');
  if (dot != std::string_view::npos && dot + 1 < value.size() && value[dot + 1] >= 'a' &&
      value[dot + 1] <= 'z') {
    return mixed_forms(text, parts.option);
  }
  return parts.add(*field, value);
}

// Reads one word of "tp2.pp4": `part` is "tp2".
Result<void> add_word(StatedParts& parts, std::string_view part, std::string_view text) {
  for (const Word& word : kWords) {
    if (part == word.word) return parts.add(word.field, word.value);
  }
  const std::size_t digits = std::min(part.find_first_of("0123456789"), part.size());
  const std::string_view key = part.substr(0, digits);
  if (const std::optional<PlanField> field = find_plan_field(key)) {
    return parts.add(*field, part.substr(digits));
  }
  std::vector<std::string> names;
  for (const PlanField field : kPlanFields) names.emplace_back(short_name_of(field));
  for (const Word& word : kWords) names.emplace_back(word.word);
  const std::vector<std::string> nearest = nearest_names(key.substr(0, kShownPart), names);
  return field_error(parts.option, "got {:?}{}; want {}", part.substr(0, kShownPart),
                     part == text ? "" : fmt::format(" in {:?}", text.substr(0, kShownPlan)),
                     nearest.empty() ? "a plan, as tp=2,pp=4, tp2.pp4 or the path of a plan.json"
                                     : join_or(nearest));
}

Result<PartialPlan> fields_from_json(const Json& json, const std::string& where) {
  FieldReader from(json, where);
  PartialPlan partial;
  for (const PlanField field : kPlanFields) {
    if (!from.has(name_of(field))) {
      from.ignore(name_of(field));
      continue;
    }
    value_from_json(partial.plan, field, from, where);
    partial.given.add(field);
  }
  from.refuse_unknown();
  COPUS_TRY_VOID(from.finish());
  settle(partial);
  return partial;
}

}  // namespace

std::string short_name(const ParallelPlan& plan, PlanFields left_out) {
  std::string name;
  const auto add = [&](PlanField field) {
    if (left_out.has(field)) return;
    if (!name.empty()) name += '.';
    name += name_part(plan, field);
  };
  for (const PlanField field : kAlwaysNamed) add(field);
  ParallelPlan usual;
  usual.tp = plan.tp;  // the default of etp
  usual.schedule = implied_schedule(plan);
  for (const PlanField field : kNamedUnlessDefault) {
    if (value_text(plan, field) != value_text(usual, field)) add(field);
  }
  return name;
}

Result<PartialPlan> parse_plan_text(std::string_view text, std::string_view option) {
  StatedParts parts{option, {}};
  const bool is_pairs = text.find('=') != std::string_view::npos;
  if (is_pairs) {
    for (const std::string_view part : split(text, ',')) {
      COPUS_TRY_VOID(add_pair(parts, part, text));
    }
  } else if (text.find(',') != std::string_view::npos) {
    return mixed_forms(text, option);
  } else {
    for (const std::string_view part : split(text, '.')) {
      COPUS_TRY_VOID(add_word(parts, part, text));
    }
  }
  settle(parts.stated);
  if (!is_pairs && is_whole(parts.stated)) parts.stated.given = PlanFields::all();
  return std::move(parts.stated);
}

Result<PartialPlan> plan_from_json(const Json& json, const std::string& where) {
  // The output of `plan --json` and `predict --json` is accepted as it is: the plan is taken from
  // its best entry.
  const Json* entry = &json;
  if (entry->is_object() && entry->contains("plans")) {
    const Json& plans = (*entry)["plans"];
    if (!plans.is_array() || plans.empty()) {
      return error_in(where, field_error("plans", "got no entry; want an array of one or more"));
    }
    entry = &plans[0];
  }
  if (entry->is_object() && entry->contains("plan")) {
    return fields_from_json((*entry)["plan"], where + ": plan");
  }
  return fields_from_json(*entry, where);
}

Json plan_to_json(const ParallelPlan& plan) {
  Json json = Json::object();
  for (const PlanField field : kPlanFields) {
    if (field == PlanField::kStageLayers && plan.stage_layers.empty()) continue;
    json[std::string(name_of(field))] = value_to_json(plan, field);
  }
  return json;
}

}  // namespace copus
