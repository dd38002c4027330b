// ParallelPlan: how a model lies over a cluster. The contract between tuner, controller, simulator,
// trainer and user.
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

// A pipeline longer than these is refused: no engine has run one, and a schedule of it would fill
// memory.
constexpr std::int64_t kMaxPipeline = 1024;
constexpr std::int64_t kMaxChunks = 4096;  // pp*vp

enum class Recompute { kNone, kSelective, kFull };
enum class ScheduleKind { kGPipe, k1F1B, kInterleaved, kZeroBubble };

std::string_view to_string(Recompute r);
std::string_view to_string(ScheduleKind k);
Result<Recompute> parse_recompute(std::string_view text);
Result<ScheduleKind> parse_schedule_kind(std::string_view text);

struct ParallelPlan {
  std::int64_t tp = 1;           // tensor parallel
  std::int64_t cp = 1;           // context parallel: the sequence is split over cp ranks
  std::int64_t pp = 1;           // pipeline parallel
  std::int64_t vp = 1;           // virtual stages (model chunks) per pipeline rank
  std::int64_t dp = 1;           // data parallel, cp not counted
  std::int64_t ep = 1;           // expert parallel: inside dp*cp
  std::int64_t micro_batch = 1;  // sequences
  int zero = 0;  // ZeRO stage: 1 shards optimizer state over dp*cp, 2 gradients too, 3 weights too
  Recompute recompute = Recompute::kNone;
  bool sp = false;  // Megatron's sequence parallelism: norms and residuals are split over tp
  ScheduleKind schedule = ScheduleKind::k1F1B;
  // Layers of each model chunk in model order (pp*vp entries); empty: the same number each.
  std::vector<std::int64_t> stage_layers;

  friend bool operator==(const ParallelPlan&, const ParallelPlan&) = default;

  std::int64_t gpus() const { return tp * cp * pp * dp; }
  // Micro-batches per step and replica. REQUIRES: divides.
  std::int64_t micro_batches(std::int64_t global_batch) const {
    return global_batch / (dp * micro_batch);
  }
  // Whether an engine that cuts so has chunks of this plan that end inside layers.
  bool is_cut_by_work(StageCut cut) const {
    return cut == StageCut::kWork && stage_layers.empty() && pp * vp > 1;
  }
  // Layers of chunk `index` in model order. REQUIRES: chunks are of whole layers.
  std::int64_t chunk_layers(std::int64_t index, const ModelSpec& model) const;

  // Names the field, its value and what would be right. Only an engine that cuts between layers
  // needs chunks that divide them.
  Result<void> validate(const ModelSpec& model, const ClusterSpec& cluster, std::int64_t seq_len,
                        std::int64_t global_batch, StageCut cut = StageCut::kLayers) const;
};

// What a plan is made of, in the order in which its parts are listed and pinned.
enum class PlanField : std::uint8_t {
  kTp,
  kCp,
  kPp,
  kVp,
  kDp,
  kEp,
  kMicroBatch,
  kZero,
  kRecompute,
  kSp,
  kSchedule,
  kStageLayers,
};
constexpr std::size_t kPlanFieldCount = 12;

// A set of them.
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

// The field's name in JSON and in errors: "micro_batch", "stage_layers".
std::string_view name_of(PlanField field);
// The field's value as --plan reads it: "4", "selective", "8x3-4".
std::string value_text(const ParallelPlan& plan, PlanField field);

// Parts of a plan that a user stated, or pinned. The other parts of `plan` have their defaults, but
// for the schedule: virtual stages without one are interleaved.
struct PartialPlan {
  ParallelPlan plan;
  PlanFields given;
  bool has(PlanField field) const { return given.has(field); }
  // Pins what `from` has there.
  void pin(PlanFields fields, const ParallelPlan& from);
  // These parts alone. REQUIRES: they are given.
  PartialPlan only(PlanFields fields) const;
  // The first field that was stated and that `other` has otherwise; none: it has all as stated.
  // Equal stages may be written out or left to be equal.
  std::optional<PlanField> contradicted_by(const ParallelPlan& other) const;
};

// A plan as text: "dp2.tp1.pp4.mb1", with cp, ep, vp, zero, recompute, sp, schedule and split only
// where they are not the default (of the schedule: interleaved with virtual stages, else 1f1b). No
// two plans share it, unless parts are left out.
std::string short_name(const ParallelPlan& plan, PlanFields left_out = {});
// A plan, or parts of one, from that text or from "tp=2,pp=4,…"; each part at most once, in any
// order. The parts that the text names are given; a short text with dp, tp, pp and mb is a whole
// plan, and gives all. `option` names the text in errors.
Result<PartialPlan> parse_plan_text(std::string_view text, std::string_view option);

Json plan_to_json(const ParallelPlan& plan);
Result<PartialPlan> plan_from_json(const Json& json, const std::string& where);

}  // namespace copus
