// ParallelPlan: how a model lies over a cluster. The contract between tuner, controller, simulator,
// trainer and user.
#pragma once

#include <cstdint>
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

// "dp2.tp1.pp4.mb1", with cp, ep, vp, zero, recompute, sp and split only where they are not the
// default.
std::string short_name(const ParallelPlan& plan);
// And back. `field` names it in the error.
Result<ParallelPlan> parse_short_name(std::string_view name, std::string_view field = "plan");

// Parts of a plan that a user stated. Parsed from "tp=2,pp=4,…" or a plan's JSON; unset fields keep
// `has` false.
struct PartialPlan {
  ParallelPlan plan;
  std::vector<std::string> given;  // names of the fields that were stated
  bool has(std::string_view field) const;
  // The first field that was stated and that `other` has otherwise; empty: it has all as stated.
  std::string contradicted_by(const ParallelPlan& other) const;
};

Result<PartialPlan> parse_plan_text(std::string_view text, std::string_view option);
Result<PartialPlan> plan_from_json(const Json& json, const std::string& where);
Json plan_to_json(const ParallelPlan& plan);

}  // namespace copus
