// A shard: one rank's file of a checkpoint. Its arrays are runs of the model's tensors, and their
// names say of which: "KIND/TENSOR/FIRSTCOLUMN.COLUMNS.BEGIN.END", a stripe. FP32 always, flat.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "copus/interop/safetensors.h"
#include "copus/train/checkpoint/manifest.h"
#include "copus/train/state/stripe.h"

namespace copus {

// The weights are those that are trained: the FP32 masters.
enum class StateArray { kWeight, kMoment1, kMoment2 };
constexpr StateArray kStateArrays[] = {StateArray::kWeight, StateArray::kMoment1,
                                       StateArray::kMoment2};
std::string_view to_string(StateArray kind);

// One array of a shard.
struct ShardPart {
  StateArray kind = StateArray::kWeight;
  std::string tensor;
  Stripe stripe;
  friend bool operator==(const ShardPart&, const ShardPart&) = default;
};

std::string part_name(const ShardPart& part);
// The stripe is one of some tensor: not empty, no number below 0 and no sum that overflows.
Result<ShardPart> parse_part_name(const std::string& name, const std::string& where);

std::string shard_name(int rank);

// What `rank` writes of a model at a layout: runs of the optimizer's holdings, each the same for
// weight and moments. All ranks' together are every element once; ranks that hold the same share
// the work.
struct ShardRun {
  std::size_t tensor = 0;  // in model_tensors()
  Stripe stripe;
};
std::vector<ShardRun> shard_runs(const ModelSpec& model, const ParallelPlan& plan,
                                 std::int64_t bucket_elements, int rank);

// Writes a shard whose parts lie in `data` one after the other. On disk when this returns.
Result<CheckpointFile> write_shard(const std::string& folder, const std::string& name,
                                   const std::vector<ShardPart>& parts,
                                   std::span<const float> data);

}  // namespace copus
