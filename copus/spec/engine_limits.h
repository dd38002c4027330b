// EngineLimits: which plans a training framework runs. The limits are data: each profile in
// catalog/frameworks/ states its own (docs/frameworks.md). engine_rules() states them as rules,
// which the search, pins and ParallelPlan::validate() check after the rules of every plan.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/spec/parallel_plan.h"

namespace copus {

// A set of small numbers: ZeRO stages, or the enumerators of a plan's field.
class SmallSet {
 public:
  constexpr SmallSet() = default;
  constexpr SmallSet(std::initializer_list<int> values) {
    for (const int value : values) add(value);
  }
  constexpr void add(int value) { bits_ |= 1u << static_cast<unsigned>(value); }
  constexpr bool has(int value) const {
    return (bits_ & (1u << static_cast<unsigned>(value))) != 0;
  }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  constexpr bool has(Enum value) const { return has(static_cast<int>(value)); }
  friend constexpr SmallSet operator&(SmallSet a, SmallSet b) {
    a.bits_ &= b.bits_;
    return a;
  }
  friend constexpr bool operator==(SmallSet, SmallSet) = default;

 private:
  std::uint32_t bits_ = 0;
};

// The ZeRO stages of pipelines if nothing else is known: the others reduce gradients, or gather
// weights, with every micro-batch.
inline constexpr SmallSet kZeroWithPipelines = {0, 1};

// How a plan cuts each expert: over the ranks of tp, not at all, or over another number of ranks.
enum class ExpertCut { kTp, kWhole, kOther };
std::string_view to_string(ExpertCut cut);

struct EngineLimits {
  std::string engine;  // names the framework in errors
  // The largest values; 0: no limit.
  std::int64_t tp = 0, cp = 0, pp = 0, vp = 0, ep = 0;
  // ZeRO stages over more than one rank; stages 2 and 3 run with pipelines only where a framework
  // states it. With pipelines zero_with_pp replaces `zero`; with context
  // or expert parallelism a stage must also be in zero_with_cp or zero_with_ep.
  SmallSet zero{0, 1, 2, 3}, zero_with_pp = kZeroWithPipelines, zero_with_cp{0, 1, 2, 3},
                             zero_with_ep{0, 1, 2, 3};
  SmallSet recompute{0, 1, 2};
  SmallSet schedule{0, 1, 2, 3};
  SmallSet sp{0, 1};  // with tp above 1
  // ExpertCuts. With ep above 1 etp_with_ep replaces `etp`.
  SmallSet etp{0, 1, 2}, etp_with_ep{0, 1, 2};
  // Models with experts need sp if tp is above 1.
  bool experts_need_sp = false;
  // tp divides the KV heads: no head is held twice.
  bool whole_kv_heads = false;
  // Embedding and head may share their matrix if stages hold them apart.
  bool tied_pipelines = true;
  SmallSet precision{0, 1, 2, 3, 4, 5, 6};

  friend bool operator==(const EngineLimits&, const EngineLimits&) = default;
};

// Reads "limits" of a framework's profile. Limits that it does not state are those of every plan.
Result<EngineLimits> engine_limits_from_json(const Json& json, const std::string& where);
Json engine_limits_to_json(const EngineLimits& limits);

// Returns what the engine can do with this field, for an error: "zero=3", "schedule 1f1b or
// interleaved"; empty if every value is allowed.
std::string limit_text(const EngineLimits& limits, PlanField field);

// Fails if the engine does not train in this precision.
Result<void> check_engine_precision(const EngineLimits& limits, Precision precision);

struct PlanRule;
// The rules about job.limits. All hold if there are no limits.
std::span<const PlanRule> engine_rules();

}  // namespace copus
