// ParallelPlan: how a model is distributed over a cluster. Tuner, controller, simulator, trainer
// and user exchange plans in this form.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/result.h"
#include "copus/spec/cluster_spec.h"
#include "copus/spec/model_spec.h"
#include "copus/spec/stage_split.h"

namespace copus {

// Longer pipelines are refused, because no engine has run one, and its schedule would fill memory.
constexpr std::int64_t kMaxPipeline = 1024;
constexpr std::int64_t kMaxChunks = 4096;  // pp*vp

struct EngineLimits;

enum class Recompute { kNone, kSelective, kFull };
enum class ScheduleKind { kGPipe, k1F1B, kInterleaved, kZeroBubble };

std::string_view to_string(Recompute r);
std::string_view to_string(ScheduleKind k);
Result<Recompute> parse_recompute(std::string_view text);
Result<ScheduleKind> parse_schedule_kind(std::string_view text);

struct ParallelPlan {
  std::int64_t tp = 1;  // tensor parallel
  std::int64_t cp = 1;  // context parallel: the sequence is split over cp ranks
  std::int64_t pp = 1;  // pipeline parallel
  std::int64_t vp = 1;  // virtual stages (model chunks) per pipeline rank
  std::int64_t dp = 1;  // data parallel, cp not counted
  std::int64_t ep = 1;  // expert parallel: each expert is on 1/ep of the expert ranks
  // Expert tensor parallel: ranks that an expert is cut over. 0: tp, which is also how a plan with
  // etp = tp is stored. Expert ranks are those of tp*cp*dp.
  std::int64_t etp = 0;
  std::int64_t micro_batch = 1;  // sequences
  int zero = 0;  // ZeRO stage: 1 shards optimizer state over dp*cp, 2 gradients too, 3 weights too
  Recompute recompute = Recompute::kNone;
  bool sp = false;  // Megatron's sequence parallelism: norms and residuals are split over tp
  ScheduleKind schedule = ScheduleKind::k1F1B;
  // Layers of each model chunk in model order (pp*vp entries). Empty: all chunks have the same
  // number.
  std::vector<std::int64_t> stage_layers;

  friend bool operator==(const ParallelPlan&, const ParallelPlan&) = default;

  std::int64_t gpus() const { return tp * cp * pp * dp; }
  // Ranks that an expert is cut over.
  std::int64_t expert_tp() const { return etp == 0 ? tp : etp; }
  // Expert data parallel: ranks that hold the same part of the same experts.
  // REQUIRES: ep*expert_tp() divides tp*cp*dp.
  std::int64_t expert_dp() const { return tp * cp * dp / (ep * expert_tp()); }
  // Micro-batches per step and replica. REQUIRES: dp*micro_batch divides `global_batch`.
  std::int64_t micro_batches(std::int64_t global_batch) const {
    return global_batch / (dp * micro_batch);
  }
  // Whether an engine with this kind of cut ends chunks of this plan inside layers.
  bool is_cut_by_work(StageCut cut) const {
    return cut == StageCut::kWork && stage_layers.empty() && pp * vp > 1;
  }
  // Returns the layers of chunk `index` in model order. REQUIRES: chunks consist of whole layers.
  std::int64_t chunk_layers(std::int64_t index, const ModelSpec& model) const;

  // Checks the rules of plan_rules.h. The error names the field, its value and the right values.
  // Only an engine that cuts between layers needs a number of chunks that divides the layers.
  // `limits`: those of a framework; null: none.
  Result<void> validate(const ModelSpec& model, const ClusterSpec& cluster, std::int64_t seq_len,
                        std::int64_t global_batch, StageCut cut = StageCut::kLayers,
                        const EngineLimits* limits = nullptr) const;
};

// The fields of a plan, in the order in which they are listed and pinned.
enum class PlanField : std::uint8_t {
  kTp,
  kCp,
  kPp,
  kVp,
  kDp,
  kEp,
  kEtp,
  kMicroBatch,
  kZero,
  kRecompute,
  kSp,
  kSchedule,
  kStageLayers,
};
constexpr std::size_t kPlanFieldCount = 13;

// A set of plan fields.
class PlanFields {
 public:
  constexpr PlanFields() = default;
  constexpr PlanFields(std::initializer_list<PlanField> fields) {
    for (const PlanField field : fields) add(field);
  }
  static constexpr PlanFields all() {
    PlanFields fields;
    fields.bits_ = (1u << kPlanFieldCount) - 1;
    return fields;
  }

  constexpr void add(PlanField field) { bits_ |= bit(field); }
  constexpr void remove(PlanField field) { bits_ &= ~bit(field); }
  constexpr bool has(PlanField field) const { return (bits_ & bit(field)) != 0; }
  constexpr bool has_all(PlanFields fields) const { return (fields.bits_ & ~bits_) == 0; }
  friend constexpr PlanFields operator|(PlanFields a, PlanFields b) {
    a.bits_ |= b.bits_;
    return a;
  }
  friend constexpr bool operator==(PlanFields, PlanFields) = default;

  // In the order of PlanField.
  std::vector<PlanField> list() const;

 private:
  static constexpr std::uint32_t bit(PlanField field) {
    return 1u << static_cast<std::uint32_t>(field);
  }
  std::uint32_t bits_ = 0;
};

// Returns the field's name in JSON and in errors: "micro_batch", "stage_layers".
std::string_view name_of(PlanField field);
// Returns the field's value as --plan reads it: "4", "selective", "8x3-4".
std::string value_text(const ParallelPlan& plan, PlanField field);

// A plan of which a user stated, or pinned, some fields. The other fields of `plan` have their
// defaults, except that virtual stages without a stated schedule are interleaved.
struct PartialPlan {
  ParallelPlan plan;
  PlanFields given;
  bool has(PlanField field) const { return given.has(field); }
  // Pins these fields to their values in `from`.
  void pin(PlanFields fields, const ParallelPlan& from);
  // Returns a partial plan with only these fields pinned. REQUIRES: the fields are given.
  PartialPlan only(PlanFields fields) const;
  // Returns the first given field that has another value in `other`. Nothing: `other` agrees with
  // all given fields. An empty stage_layers equals a list of equal numbers.
  std::optional<PlanField> contradicted_by(const ParallelPlan& other) const;
};

// Returns a plan as text: "dp2.tp1.pp4.mb1". It has cp, ep, etp, vp, zero, recompute, sp, schedule
// and split only if they differ from the default (etp: tp; schedule: interleaved with virtual
// stages, else 1f1b). No two plans have the same text, unless fields are left out.
std::string short_name(const ParallelPlan& plan, PlanFields left_out = {});
// Reads a plan, or fields of one, from that text or from "tp=2,pp=4,…". Each field may occur once,
// in any order. The fields that the text names become given. A short name with dp, tp, pp and mb is
// a whole plan, so all fields become given. `option` names the text in errors.
Result<PartialPlan> parse_plan_text(std::string_view text, std::string_view option);

Json plan_to_json(const ParallelPlan& plan);
Result<PartialPlan> plan_from_json(const Json& json, const std::string& where);

}  // namespace copus
