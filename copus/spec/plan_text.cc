// Plans as text, as JSON and as short names.
#include <algorithm>
#include <array>

#include "copus/base/text.h"
#include "copus/spec/parallel_plan.h"

namespace copus {
namespace {

struct CountField {
  std::string_view name;
  std::int64_t ParallelPlan::*member;
};
// In the order in which they are printed.
constexpr std::array<CountField, 7> kCounts = {{
    {"tp", &ParallelPlan::tp},
    {"cp", &ParallelPlan::cp},
    {"pp", &ParallelPlan::pp},
    {"vp", &ParallelPlan::vp},
    {"dp", &ParallelPlan::dp},
    {"ep", &ParallelPlan::ep},
    {"micro_batch", &ParallelPlan::micro_batch},
}};

constexpr std::array kRecomputes = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
constexpr std::array kSchedules = {ScheduleKind::kGPipe, ScheduleKind::k1F1B,
                                   ScheduleKind::kInterleaved, ScheduleKind::kZeroBubble};

std::string_view canonical(std::string_view key) {
  if (key == "mb") return "micro_batch";
  if (key == "split") return "stage_layers";
  return key;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

template <typename Enum, std::size_t n>
Result<Enum> parse_enum(std::string_view field, std::string_view text,
                        const std::array<Enum, n>& values) {
  std::vector<std::string> names;
  for (const Enum value : values) {
    if (text == to_string(value)) return value;
    names.emplace_back(to_string(value));
  }
  return make_error("{}: got {:?}; want {}", field, text.substr(0, 40), join_or(names));
}

// "8-8-8-4", where "8x3-4" says the same.
Result<std::vector<std::int64_t>> parse_split(std::string_view text) {
  std::vector<std::int64_t> layers;
  for (const std::string_view part : split(text, '-')) {
    const std::size_t times = part.find('x');
    COPUS_TRY(const std::int64_t n, parse_integer(part.substr(0, times), "split", 0, kMaxGpus));
    std::int64_t count = 1;
    if (times != std::string_view::npos) {
      COPUS_TRY(count, parse_integer(part.substr(times + 1), "split, after x", 1, kMaxChunks));
    }
    if (static_cast<std::int64_t>(layers.size()) + count > kMaxChunks) {
      return make_error("split: got more than {} chunks; want pp*vp of them", kMaxChunks);
    }
    layers.insert(layers.end(), static_cast<std::size_t>(count), n);
  }
  return layers;
}

std::string split_text(const std::vector<std::int64_t>& layers) {
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end < layers.size() && layers[end] == layers[i]) ++end;
    // A run of two reads better written out.
    const bool run = end - i > 2;
    if (!text.empty()) text += '-';
    text += run ? fmt::format("{}x{}", layers[i], end - i) : fmt::format("{}", layers[i]);
    i = run ? end : i + 1;
  }
  return text;
}

Result<void> set_field(ParallelPlan& plan, std::string_view key, std::string_view value) {
  for (const CountField& field : kCounts) {
    if (key != field.name) continue;
    COPUS_TRY(plan.*field.member, parse_integer(value, key, 1, kMaxGpus));
    return {};
  }
  if (key == "zero") {
    COPUS_TRY(const std::int64_t stage, parse_integer(value, key, 0, 3));
    plan.zero = static_cast<int>(stage);
  } else if (key == "recompute") {
    COPUS_TRY(plan.recompute, parse_recompute(value));
  } else if (key == "schedule") {
    COPUS_TRY(plan.schedule, parse_schedule_kind(value));
  } else if (key == "stage_layers") {
    COPUS_TRY(plan.stage_layers, parse_split(value));
  } else if (key == "sp") {
    plan.sp = value == "1" || value == "true";
    if (!plan.sp && value != "0" && value != "false") {
      return make_error("sp: got {:?}; want 0 or 1", value.substr(0, 40));
    }
  } else {
    std::vector<std::string> names = {"zero", "recompute", "sp", "schedule", "split"};
    names.reserve(names.size() + kCounts.size());
    for (const CountField& field : kCounts) names.emplace_back(field.name);
    const std::vector<std::string> nearest = nearest_names(key.substr(0, 40), names);
    return make_error("got the key {:?}; want {}", key.substr(0, 40),
                      join_or(nearest.empty() ? names : nearest));
  }
  return {};
}

// Virtual stages mean nothing but interleaving, so stating them is enough.
void imply_schedule(PartialPlan& partial) {
  if (partial.plan.vp > 1 && !partial.has("schedule")) {
    partial.plan.schedule = ScheduleKind::kInterleaved;
  }
}

Result<std::vector<std::int64_t>> layers_from_json(const Json& json, const std::string& where) {
  if (!json.is_array()) {
    return make_error("{}: stage_layers: got {}; want an array, as [8, 8, 8, 4]", where,
                      json.type_name());
  }
  std::vector<std::int64_t> layers;
  for (const Json& entry : json) {
    const bool fits = entry.is_number_unsigned()
                          ? entry.get<std::uint64_t>() <= std::uint64_t{kMaxGpus}
                          : entry.is_number_integer() && entry.get<std::int64_t>() >= 0 &&
                                entry.get<std::int64_t>() <= kMaxGpus;
    if (!fits) {
      const std::string got = entry.dump();
      return make_error("{}: stage_layers: got {} at entry {}; want 0 to {}", where,
                        std::string_view(got).substr(0, 40), layers.size(), kMaxGpus);
    }
    layers.push_back(entry.get<std::int64_t>());
  }
  return layers;
}

Result<PartialPlan> fields_from_json(const Json& json, const std::string& where) {
  FieldReader from(json, where);
  PartialPlan partial;
  ParallelPlan& plan = partial.plan;
  const auto stated = [&](std::string_view key) {
    if (!from.has(key)) {
      from.ignore(key);
      return false;
    }
    partial.given.emplace_back(key);
    return true;
  };
  const auto read_enum = [&](std::string_view key, auto& value, auto parse) {
    if (!stated(key)) return;
    auto parsed = parse(from.text(key));
    if (parsed) {
      value = *parsed;
    } else {
      from.fail(make_error("{}: {}", where, parsed.error().message));
    }
  };
  for (const CountField& field : kCounts) {
    if (stated(field.name)) plan.*field.member = from.integer(field.name, 1, kMaxGpus);
  }
  if (stated("zero")) plan.zero = static_cast<int>(from.integer("zero", 0, 3));
  read_enum("recompute", plan.recompute, parse_recompute);
  if (stated("sp")) plan.sp = from.boolean_or("sp", false);
  read_enum("schedule", plan.schedule, parse_schedule_kind);
  if (stated("stage_layers")) {
    auto layers = layers_from_json(from.child("stage_layers"), where);
    if (layers) {
      plan.stage_layers = std::move(layers).value();
    } else {
      from.fail(layers.error());
    }
  }
  from.refuse_unknown();
  COPUS_TRY_VOID(from.finish());
  imply_schedule(partial);
  return partial;
}

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

std::string short_name(const ParallelPlan& plan) {
  std::string name =
      fmt::format("dp{}.tp{}.pp{}.mb{}", plan.dp, plan.tp, plan.pp, plan.micro_batch);
  if (plan.cp != 1) name += fmt::format(".cp{}", plan.cp);
  if (plan.ep != 1) name += fmt::format(".ep{}", plan.ep);
  if (plan.vp != 1) name += fmt::format(".vp{}", plan.vp);
  if (plan.zero != 0) name += fmt::format(".z{}", plan.zero);
  if (plan.recompute == Recompute::kFull) name += ".rc-full";
  if (plan.recompute == Recompute::kSelective) name += ".rc-sel";
  if (plan.sp) name += ".sp";
  if (plan.schedule == ScheduleKind::kGPipe) name += ".gpipe";
  if (plan.schedule == ScheduleKind::kZeroBubble) name += ".zb";
  if (!plan.stage_layers.empty()) {
    name += ".split" + split_text(plan.stage_layers);
  }
  return name;
}

Result<ParallelPlan> parse_short_name(std::string_view name, std::string_view field) {
  ParallelPlan plan;
  const auto flag = [&](std::string_view part) {
    if (part == "rc-full") plan.recompute = Recompute::kFull;
    if (part == "rc-sel") plan.recompute = Recompute::kSelective;
    if (part == "sp") plan.sp = true;
    if (part == "gpipe") plan.schedule = ScheduleKind::kGPipe;
    if (part == "zb") plan.schedule = ScheduleKind::kZeroBubble;
    return part == "rc-full" || part == "rc-sel" || part == "sp" || part == "gpipe" || part == "zb";
  };
  for (const std::string_view part : split(name, '.')) {
    if (flag(part)) continue;
    const std::size_t digits = std::min(part.find_first_of("0123456789"), part.size());
    const std::string_view key = part.substr(0, digits);
    if (auto set = set_field(plan, key == "z" ? "zero" : canonical(key), part.substr(digits));
        !set) {
      return make_error("{}: got {:?}; want a name as dp2.tp1.pp2.mb4 ({})", field,
                        name.substr(0, 80), set.error().message);
    }
  }
  if (plan.vp > 1) plan.schedule = ScheduleKind::kInterleaved;
  return plan;
}

bool PartialPlan::has(std::string_view field) const {
  return std::find(given.begin(), given.end(), canonical(field)) != given.end();
}

std::string PartialPlan::contradicted_by(const ParallelPlan& other) const {
  const Json stated = plan_to_json(plan), there = plan_to_json(other);
  for (const std::string& field : given) {
    if (there.contains(field) && there.at(field) != stated.value(field, Json())) return field;
  }
  return "";
}

Result<PartialPlan> parse_plan_text(std::string_view text, std::string_view option) {
  PartialPlan partial;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      return make_error("{}: got {:?}; want KEY=VALUE[,KEY=VALUE…], as tp=2,pp=4", option,
                        part.substr(0, 40));
    }
    const std::string_view key = canonical(trimmed(part.substr(0, equals)));
    if (partial.has(key)) {
      return make_error("{}: got {} twice; want each key once", option, key);
    }
    if (auto set = set_field(partial.plan, key, trimmed(part.substr(equals + 1))); !set) {
      return make_error("{}: {}", option, set.error().message);
    }
    partial.given.emplace_back(key);
  }
  imply_schedule(partial);
  return partial;
}

Result<PartialPlan> plan_from_json(const Json& json, const std::string& where) {
  // What `plan --json` and `predict --json` print is accepted as it is: the best entry, and in it
  // the plan.
  const Json* entry = &json;
  if (entry->is_object() && entry->contains("plans")) {
    const Json& plans = (*entry)["plans"];
    if (!plans.is_array() || plans.empty()) {
      return make_error("{}: plans: got no entry; want an array of one or more", where);
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
  for (const CountField& field : kCounts) json[std::string(field.name)] = plan.*field.member;
  json["zero"] = plan.zero;
  json["recompute"] = std::string(to_string(plan.recompute));
  json["sp"] = plan.sp;
  json["schedule"] = std::string(to_string(plan.schedule));
  if (!plan.stage_layers.empty()) json["stage_layers"] = plan.stage_layers;
  return json;
}

}  // namespace copus
