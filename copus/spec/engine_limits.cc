#include "copus/spec/engine_limits.h"

#include <array>
#include <utility>
#include <vector>

#include "copus/base/text.h"
#include "copus/spec/plan_fields.h"
#include "copus/spec/plan_rules.h"

namespace copus {
namespace {

using enum PlanField;

constexpr std::array kStages = {0, 1, 2, 3};
constexpr std::array kOffOn = {0, 1};
constexpr std::array kExpertCuts = {ExpertCut::kTp, ExpertCut::kWhole, ExpertCut::kOther};

// A limit of the largest value.
struct CountLimit {
  PlanField field;
  std::int64_t EngineLimits::*most;
  std::int64_t ParallelPlan::*value;
  std::string_view what;  // what the engine does not do at all if the limit is 1
};
constexpr CountLimit kCounts[] = {
    {kTp, &EngineLimits::tp, &ParallelPlan::tp, "tensor parallelism"},
    {kCp, &EngineLimits::cp, &ParallelPlan::cp, "context parallelism"},
    {kPp, &EngineLimits::pp, &ParallelPlan::pp, "pipelines"},
    {kVp, &EngineLimits::vp, &ParallelPlan::vp, "virtual stages"},
    {kEp, &EngineLimits::ep, &ParallelPlan::ep, "expert parallelism"},
};

std::string word(int number) { return std::to_string(number); }
template <typename Enum>
requires std::is_enum_v<Enum> std::string word(Enum value) { return std::string(to_string(value)); }

template <typename T, std::size_t n>
std::vector<std::string> words_of(SmallSet set, const std::array<T, n>& values) {
  std::vector<std::string> words;
  for (const T value : values) {
    if (set.has(value)) words.push_back(word(value));
  }
  return words;
}

// The limits that are sets, with their keys.
template <typename T, std::size_t n>
struct SetLimit {
  std::string_view key;
  SmallSet EngineLimits::*set;
  const std::array<T, n>& values;
};
template <typename T, std::size_t n>
SetLimit(const char*, SmallSet EngineLimits::*, const std::array<T, n>&) -> SetLimit<T, n>;

template <typename Use>
void for_each_set(Use&& use) {
  use(SetLimit{"zero", &EngineLimits::zero, kStages});
  use(SetLimit{"zero_with_pp", &EngineLimits::zero_with_pp, kStages});
  use(SetLimit{"zero_with_cp", &EngineLimits::zero_with_cp, kStages});
  use(SetLimit{"zero_with_ep", &EngineLimits::zero_with_ep, kStages});
  use(SetLimit{"recompute", &EngineLimits::recompute, kRecomputes});
  use(SetLimit{"schedule", &EngineLimits::schedule, kSchedules});
  use(SetLimit{"sp", &EngineLimits::sp, kOffOn});
  use(SetLimit{"etp", &EngineLimits::etp, kExpertCuts});
  use(SetLimit{"etp_with_ep", &EngineLimits::etp_with_ep, kExpertCuts});
  use(SetLimit{"precision", &EngineLimits::precision, kPrecisions});
}

constexpr std::pair<std::string_view, bool EngineLimits::*> kFlags[] = {
    {"experts_need_sp", &EngineLimits::experts_need_sp},
    {"whole_kv_heads", &EngineLimits::whole_kv_heads},
    {"tied_pipelines", &EngineLimits::tied_pipelines},
};

const EngineLimits& limits_of(const PlanJob& job) { return *job.limits; }

template <std::size_t i>
constexpr PlanRule count_rule() {
  return {{kCounts[i].field},
          [](const ParallelPlan& plan, const PlanJob& job) noexcept {
            return job.limits == nullptr || limits_of(job).*kCounts[i].most == 0 ||
                   plan.*kCounts[i].value <= limits_of(job).*kCounts[i].most;
          },
          [](const ParallelPlan& plan, const PlanJob& job) {
            return field_error(name_of(kCounts[i].field), "got {}; want {}", plan.*kCounts[i].value,
                               limit_text(limits_of(job), kCounts[i].field));
          }};
}

// The ZeRO stages that the engine runs in this plan.
SmallSet stages_for(const EngineLimits& limits, const ParallelPlan& plan) noexcept {
  SmallSet stages = plan.pp > 1 ? limits.zero_with_pp : limits.zero;
  if (plan.cp > 1) stages = stages & limits.zero_with_cp;
  if (plan.ep > 1) stages = stages & limits.zero_with_ep;
  return stages;
}

// How the engine may cut the experts of this plan.
SmallSet cuts_for(const EngineLimits& limits, const ParallelPlan& plan) noexcept {
  return plan.ep > 1 ? limits.etp_with_ep : limits.etp;
}

bool cuts_experts(SmallSet cuts, const ParallelPlan& plan) noexcept {
  const std::int64_t etp = plan.expert_tp();
  if (etp == plan.tp && cuts.has(ExpertCut::kTp)) return true;
  if (etp == 1) return cuts.has(ExpertCut::kWhole);
  return etp != plan.tp && cuts.has(ExpertCut::kOther);
}

constexpr PlanRule kEngineRules[] = {
    count_rule<0>(),
    count_rule<1>(),
    count_rule<2>(),
    count_rule<3>(),
    count_rule<4>(),
    {{kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.limits == nullptr || !limits_of(job).whole_kv_heads || job.model.mla.enabled ||
              job.model.kv_heads % plan.tp == 0;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("tp",
                          "got {}; want a divisor of the {} KV heads, because {} holds each once",
                          plan.tp, job.model.kv_heads, limits_of(job).engine);
     }},
    {{kSp, kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.limits == nullptr || plan.tp == 1 || limits_of(job).sp.has(plan.sp ? 1 : 0);
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("sp", "got {} with tp={}; want {}", plan.sp ? 1 : 0, plan.tp,
                          limit_text(limits_of(job), kSp));
     }},
    {{kSp, kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.limits == nullptr || !limits_of(job).experts_need_sp || !job.model.is_moe() ||
              plan.tp == 1 || plan.sp;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("sp",
                          "got 0 with tp={}; want 1, because {} trains experts under tp with "
                          "sp=1 only",
                          plan.tp, limits_of(job).engine);
     }},
    {{kPp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.limits == nullptr || limits_of(job).tied_pipelines || plan.pp == 1 ||
              !job.model.tied_embeddings;
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error(
           "pp",
           "got {}; want 1, because {} runs no pipelines if embedding and head share "
           "their matrix",
           plan.pp, limits_of(job).engine);
     }},
    {{kEtp, kEp, kTp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.limits == nullptr || !job.model.is_moe() ||
              cuts_experts(cuts_for(limits_of(job), plan), plan);
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       const SmallSet cuts = cuts_for(limits_of(job), plan);
       std::vector<std::string> values;
       if (cuts.has(ExpertCut::kTp)) values.push_back(fmt::format("tp ({})", plan.tp));
       if (cuts.has(ExpertCut::kWhole)) values.push_back("1");
       if (cuts.has(ExpertCut::kOther)) values.push_back("a value between");
       return field_error("etp", "got {} with tp={} and ep={}; want {}, which {} runs there",
                          plan.expert_tp(), plan.tp, plan.ep, join_or(values),
                          limits_of(job).engine);
     }},
    {{kRecompute},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.limits == nullptr || limits_of(job).recompute.has(plan.recompute);
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("recompute", "got {}; want {}", to_string(plan.recompute),
                          limit_text(limits_of(job), kRecompute));
     }},
    {{kSchedule, kPp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.limits == nullptr || plan.pp == 1 || limits_of(job).schedule.has(plan.schedule);
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       return field_error("schedule", "got {}; want {}", to_string(plan.schedule),
                          limit_text(limits_of(job), kSchedule));
     }},
    {{kZero, kPp, kDp, kCp, kEp},
     [](const ParallelPlan& plan, const PlanJob& job) noexcept {
       return job.limits == nullptr || plan.dp * plan.cp == 1 ||
              stages_for(limits_of(job), plan).has(plan.zero);
     },
     [](const ParallelPlan& plan, const PlanJob& job) {
       const std::vector<std::string> stages = words_of(stages_for(limits_of(job), plan), kStages);
       std::string where = fmt::format("pp={}", plan.pp);
       if (plan.cp > 1) where += fmt::format(" and cp={}", plan.cp);
       if (plan.ep > 1) where += fmt::format(" and ep={}", plan.ep);
       if (stages.empty()) {
         return field_error("zero", "got {} with {}; {} runs no stage there", plan.zero, where,
                            limits_of(job).engine);
       }
       return field_error("zero", "got {} with {}; want {}, which {} runs there", plan.zero, where,
                          join_or(stages), limits_of(job).engine);
     }},
};

}  // namespace

std::string_view to_string(ExpertCut cut) {
  switch (cut) {
    case ExpertCut::kTp:
      return "tp";
    case ExpertCut::kWhole:
      return "1";
    case ExpertCut::kOther:
      break;
  }
  return "other";
}

std::span<const PlanRule> engine_rules() { return kEngineRules; }

std::string limit_text(const EngineLimits& limits, PlanField field) {
  for (const CountLimit& count : kCounts) {
    if (count.field != field) continue;
    const std::int64_t most = limits.*count.most;
    if (most == 0) return "";
    if (most == 1) return fmt::format("1, because {} runs no {}", limits.engine, count.what);
    return fmt::format("at most {}, the limit of {}", most, limits.engine);
  }
  const auto runs = [&](const std::vector<std::string>& words, std::size_t all) {
    return words.size() == all ? std::string()
                               : fmt::format("{}, which {} runs", join_or(words), limits.engine);
  };
  switch (field) {
    case kRecompute:
      return runs(words_of(limits.recompute, kRecomputes), kRecomputes.size());
    case kSchedule:
      return runs(words_of(limits.schedule, kSchedules), kSchedules.size());
    case kSp:
      return runs(words_of(limits.sp, kOffOn), kOffOn.size());
    case kZero: {
      const auto one = words_of(limits.zero, kStages),
                 many = words_of(limits.zero_with_pp, kStages);
      if (one == many || limits.pp == 1) return runs(one, kStages.size());
      return fmt::format("{} without and {} with pipelines, which {} runs", join_or(one),
                         join_or(many), limits.engine);
    }
    default:
      return "";
  }
}

Result<void> check_engine_precision(const EngineLimits& limits, Precision precision) {
  if (limits.precision.has(precision)) return {};
  return field_error("--precision", "got {}; want {}, which {} trains in", to_string(precision),
                     join_or(words_of(limits.precision, kPrecisions)), limits.engine);
}

Result<EngineLimits> engine_limits_from_json(const Json& json, const std::string& where) {
  FieldReader fields(json, where);
  EngineLimits limits;
  for (const CountLimit& count : kCounts) {
    limits.*count.most = fields.integer_or(name_of(count.field), 0, 0, kMaxGpus);
  }
  for (const auto& [key, flag] : kFlags) limits.*flag = fields.boolean_or(key, limits.*flag);
  for_each_set([&](const auto& limit) {
    const Json& listed = fields.child(limit.key);
    if (listed.is_null()) return;
    SmallSet set;
    bool right = listed.is_array() && !listed.empty();
    for (const Json& entry : listed) {
      const std::string text = entry.is_string() ? entry.get<std::string>() : entry.dump();
      bool found = false;
      for (const auto value : limit.values) {
        if (text != word(value)) continue;
        set.add(static_cast<int>(value));
        found = true;
      }
      right = right && found;
    }
    if (right) {
      limits.*limit.set = set;
    } else {
      std::vector<std::string> all;
      for (const auto value : limit.values) all.push_back(word(value));
      fields.fail(error_in(
          where, field_error(limit.key, "got {}; want a list of {}",
                             std::string_view(listed.dump()).substr(0, 80), join_or(all))));
    }
  });
  fields.ignore("source");
  fields.refuse_unknown();
  COPUS_TRY_VOID(fields.finish());
  return limits;
}

Json engine_limits_to_json(const EngineLimits& limits) {
  const EngineLimits none;
  Json json = Json::object();
  for (const CountLimit& count : kCounts) {
    if (limits.*count.most > 0) json[std::string(name_of(count.field))] = limits.*count.most;
  }
  for (const auto& [key, flag] : kFlags) {
    if (limits.*flag != none.*flag) json[std::string(key)] = limits.*flag;
  }
  for_each_set([&](const auto& limit) {
    if (limits.*limit.set == none.*limit.set) return;
    Json& list = json[std::string(limit.key)] = Json::array();
    for (const auto value : limit.values) {
      if (!(limits.*limit.set).has(value)) continue;
      if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(value)>>) {
        list.push_back(word(value));
      } else {
        list.push_back(value);
      }
    }
  });
  return json;
}

}  // namespace copus
