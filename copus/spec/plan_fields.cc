#include "copus/spec/plan_fields.h"

#include <algorithm>
#include <functional>

#include "copus/base/check.h"
#include "copus/base/text.h"

namespace copus {
namespace {

struct FieldRow {
  PlanField field;
  std::string_view name;
  std::string_view short_name;
};
constexpr std::array<FieldRow, kPlanFieldCount> kRows = {{
    {PlanField::kTp, "tp", "tp"},
    {PlanField::kCp, "cp", "cp"},
    {PlanField::kPp, "pp", "pp"},
    {PlanField::kVp, "vp", "vp"},
    {PlanField::kDp, "dp", "dp"},
    {PlanField::kEp, "ep", "ep"},
    {PlanField::kEtp, "etp", "etp"},
    {PlanField::kMicroBatch, "micro_batch", "mb"},
    {PlanField::kZero, "zero", "z"},
    {PlanField::kRecompute, "recompute", "rc"},
    {PlanField::kSp, "sp", "sp"},
    {PlanField::kSchedule, "schedule", "schedule"},
    {PlanField::kStageLayers, "stage_layers", "split"},
}};

// Calls `use` with the pointer to the field's member.
template <typename Use>
auto with_member(PlanField field, Use&& use) {
  switch (field) {
    case PlanField::kTp:
      return use(&ParallelPlan::tp);
    case PlanField::kCp:
      return use(&ParallelPlan::cp);
    case PlanField::kPp:
      return use(&ParallelPlan::pp);
    case PlanField::kVp:
      return use(&ParallelPlan::vp);
    case PlanField::kDp:
      return use(&ParallelPlan::dp);
    case PlanField::kEp:
      return use(&ParallelPlan::ep);
    case PlanField::kEtp:
      return use(&ParallelPlan::etp);
    case PlanField::kMicroBatch:
      return use(&ParallelPlan::micro_batch);
    case PlanField::kZero:
      return use(&ParallelPlan::zero);
    case PlanField::kRecompute:
      return use(&ParallelPlan::recompute);
    case PlanField::kSp:
      return use(&ParallelPlan::sp);
    case PlanField::kSchedule:
      return use(&ParallelPlan::schedule);
    case PlanField::kStageLayers:
      break;
  }
  return use(&ParallelPlan::stage_layers);
}

using Layers = std::vector<std::int64_t>;

constexpr std::string_view kEqualStages = "equal";
// How many characters of the user's text an error shows.
constexpr std::size_t kShownValue = 40;

template <typename Enum, std::size_t n>
Result<Enum> parse_enum(std::string_view field, std::string_view text,
                        const std::array<Enum, n>& values) {
  std::vector<std::string> names;
  for (const Enum value : values) {
    if (text == to_string(value)) return value;
    names.emplace_back(to_string(value));
  }
  return field_error(field, "got {:?}; want {}", text.substr(0, kShownValue), join_or(names));
}

std::string text_of(std::int64_t count) { return std::to_string(count); }
std::string text_of(int zero) { return std::to_string(zero); }
std::string text_of(bool on) { return on ? "1" : "0"; }
std::string text_of(Recompute recompute) { return std::string(to_string(recompute)); }
std::string text_of(ScheduleKind schedule) { return std::string(to_string(schedule)); }

// Returns "8-8-4". A run of three or more equal numbers becomes "8x3".
std::string text_of(const Layers& layers) {
  if (layers.empty()) return std::string(kEqualStages);
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end < layers.size() && layers[end] == layers[i]) ++end;
    // A run of two is easier to read as two numbers.
    const bool run = end - i > 2;
    if (!text.empty()) text += '-';
    text += run ? fmt::format("{}x{}", layers[i], end - i) : fmt::format("{}", layers[i]);
    i = run ? end : i + 1;
  }
  return text;
}

Result<void> parse_into(std::int64_t& count, std::string_view field, std::string_view text) {
  COPUS_TRY(count, parse_integer(text, field, 1, kMaxGpus));
  return {};
}
Result<void> parse_into(int& zero, std::string_view field, std::string_view text) {
  COPUS_TRY(const std::int64_t stage, parse_integer(text, field, 0, 3));
  zero = static_cast<int>(stage);
  return {};
}
Result<void> parse_into(bool& on, std::string_view field, std::string_view text) {
  on = text == "1" || text == "true";
  if (on || text == "0" || text == "false") return {};
  return field_error(field, "got {:?}; want 0 or 1", text.substr(0, kShownValue));
}
Result<void> parse_into(Recompute& recompute, std::string_view /*field*/, std::string_view text) {
  COPUS_TRY(recompute, parse_recompute(text));
  return {};
}
Result<void> parse_into(ScheduleKind& schedule, std::string_view /*field*/, std::string_view text) {
  COPUS_TRY(schedule, parse_schedule_kind(text));
  return {};
}
Result<void> parse_into(Layers& layers, std::string_view /*field*/, std::string_view text) {
  layers.clear();
  if (text == kEqualStages) return {};
  for (const std::string_view part : split(text, '-')) {
    const std::size_t times = part.find('x');
    COPUS_TRY(const std::int64_t n, parse_integer(part.substr(0, times), "split", 0, kMaxGpus));
    std::int64_t count = 1;
    if (times != std::string_view::npos) {
      COPUS_TRY(count, parse_integer(part.substr(times + 1), "split, after x", 1, kMaxChunks));
    }
    if (static_cast<std::int64_t>(layers.size()) + count > kMaxChunks) {
      return field_error("split", "got more than {} chunks; want pp*vp of them", kMaxChunks);
    }
    layers.insert(layers.end(), static_cast<std::size_t>(count), n);
  }
  return {};
}

Json json_of(std::int64_t count) { return count; }
Json json_of(int zero) { return zero; }
Json json_of(bool on) { return on; }
Json json_of(Recompute recompute) { return to_string(recompute); }
Json json_of(ScheduleKind schedule) { return to_string(schedule); }
Json json_of(const Layers& layers) { return layers; }

Result<Layers> layers_from_json(const Json& json) {
  const std::string_view field = name_of(PlanField::kStageLayers);
  if (!json.is_array()) {
    return field_error(field, "got {}; want an array, as [8, 8, 8, 4]", json.type_name());
  }
  Layers layers;
  for (const Json& entry : json) {
    const bool fits = entry.is_number_unsigned()
                          ? entry.get<std::uint64_t>() <= std::uint64_t{kMaxGpus}
                          : entry.is_number_integer() && entry.get<std::int64_t>() >= 0 &&
                                entry.get<std::int64_t>() <= kMaxGpus;
    if (!fits) {
      const std::string got = entry.dump();
      return field_error(field, "got {} at entry {}; want 0 to {}",
                         std::string_view(got).substr(0, kShownValue), layers.size(), kMaxGpus);
    }
    layers.push_back(entry.get<std::int64_t>());
  }
  return layers;
}

// Reads fields of one JSON object.
struct JsonSource {
  FieldReader& from;
  const std::string& where;
  std::string_view key;

  template <typename T>
  void keep(T& value, Result<T> read) const {
    if (read) {
      value = std::move(read).value();
    } else {
      from.fail(error_in(where, read.error()));
    }
  }
  void read(std::int64_t& count) const { count = from.integer(key, 1, kMaxGpus); }
  void read(int& zero) const { zero = static_cast<int>(from.integer(key, 0, 3)); }
  void read(bool& on) const { on = from.boolean_or(key, false); }
  void read(Recompute& recompute) const { keep(recompute, parse_recompute(from.text(key))); }
  void read(ScheduleKind& schedule) const { keep(schedule, parse_schedule_kind(from.text(key))); }
  void read(Layers& layers) const { keep(layers, layers_from_json(from.child(key))); }
};

bool equal_stages(const Layers& layers) {
  return std::adjacent_find(layers.begin(), layers.end(), std::not_equal_to<>()) == layers.end();
}

template <typename T>
bool same(const T& a, const T& b) {
  return a == b;
}
bool same(const Layers& a, const Layers& b) {
  return a == b || ((a.empty() || b.empty()) && equal_stages(a) && equal_stages(b));
}

const FieldRow& row_of(PlanField field) { return kRows[static_cast<std::size_t>(field)]; }

}  // namespace

std::string_view to_string(Recompute r) {
  switch (r) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
  }
  return "?";
}

std::string_view to_string(ScheduleKind k) {
  switch (k) {
    case ScheduleKind::kGPipe:
      return "gpipe";
    case ScheduleKind::k1F1B:
      return "1f1b";
    case ScheduleKind::kInterleaved:
      return "interleaved";
    case ScheduleKind::kZeroBubble:
      return "zero_bubble";
  }
  return "?";
}

Result<Recompute> parse_recompute(std::string_view text) {
  return parse_enum("recompute", text, kRecomputes);
}

Result<ScheduleKind> parse_schedule_kind(std::string_view text) {
  return parse_enum("schedule", text, kSchedules);
}

std::vector<PlanField> PlanFields::list() const {
  std::vector<PlanField> fields;
  for (const PlanField field : kPlanFields) {
    if (has(field)) fields.push_back(field);
  }
  return fields;
}

std::string_view name_of(PlanField field) { return row_of(field).name; }
std::string_view short_name_of(PlanField field) { return row_of(field).short_name; }

std::optional<PlanField> find_plan_field(std::string_view name) {
  for (const FieldRow& row : kRows) {
    if (name == row.name || name == row.short_name) return row.field;
  }
  return std::nullopt;
}

std::string value_text(const ParallelPlan& plan, PlanField field) {
  if (field == PlanField::kEtp) return text_of(plan.expert_tp());
  return with_member(field, [&](auto member) { return text_of(plan.*member); });
}

Result<void> parse_value(ParallelPlan& plan, PlanField field, std::string_view text) {
  return with_member(field,
                     [&](auto member) { return parse_into(plan.*member, name_of(field), text); });
}

Json value_to_json(const ParallelPlan& plan, PlanField field) {
  if (field == PlanField::kEtp) return json_of(plan.expert_tp());
  return with_member(field, [&](auto member) { return json_of(plan.*member); });
}

void value_from_json(ParallelPlan& plan, PlanField field, FieldReader& from,
                     const std::string& where) {
  const JsonSource source{from, where, name_of(field)};
  with_member(field, [&](auto member) { source.read(plan.*member); });
}

void copy_value(PlanField field, const ParallelPlan& from, ParallelPlan& to) {
  with_member(field, [&](auto member) { to.*member = from.*member; });
}

bool same_value(PlanField field, const ParallelPlan& a, const ParallelPlan& b) {
  if (field == PlanField::kEtp) return a.expert_tp() == b.expert_tp();
  return with_member(field, [&](auto member) { return same(a.*member, b.*member); });
}

ParallelPlan with_settled_etp(ParallelPlan plan) {
  if (plan.etp == plan.tp) plan.etp = 0;
  return plan;
}

ScheduleKind implied_schedule(const ParallelPlan& plan) {
  return plan.vp > 1 ? ScheduleKind::kInterleaved : ScheduleKind::k1F1B;
}

void PartialPlan::pin(PlanFields fields, const ParallelPlan& from) {
  for (const PlanField field : fields.list()) copy_value(field, from, plan);
  given = given | fields;
}

PartialPlan PartialPlan::only(PlanFields fields) const {
  COPUS_CHECK(given.has_all(fields));
  PartialPlan part;
  part.pin(fields, plan);
  if (!part.has(PlanField::kSchedule)) part.plan.schedule = implied_schedule(part.plan);
  return part;
}

std::optional<PlanField> PartialPlan::contradicted_by(const ParallelPlan& other) const {
  for (const PlanField field : given.list()) {
    if (!same_value(field, plan, other)) return field;
  }
  return std::nullopt;
}

}  // namespace copus
