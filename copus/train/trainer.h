// Trainer: one rank's part of a training run, a step at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "copus/spec/schedule.h"
#include "copus/train/adamw.h"
#include "copus/train/buckets.h"
#include "copus/train/data/dataset.h"
#include "copus/train/pipeline.h"

namespace copus {

enum class Compute { kFp32, kBf16 };

struct TrainerOptions {
  ModelSpec model;
  ParallelPlan plan;
  std::int64_t seq_len = 0;
  std::int64_t global_batch = 0;
  std::uint64_t seed = 1;
  AdamOptions adam;
  LrSchedule lr;
  double clip_norm = 1.0;  // 0: no clipping
  Compute compute = Compute::kFp32;
  at::Device device = at::kCPU;
  std::int64_t bucket_elements = 8 << 20;
};

// What this engine cannot train, though it can be planned: the error names the field.
Result<void> check_trainable(const TrainerOptions& options);

struct StepResult {
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double asked_to_stop = 0;  // how many ranks passed `stop`
  // Where this rank's time went, in seconds. Waiting for a pipeline message is the bubble and the
  // transfer together.
  double total_s = 0, tp_wait_s = 0, pp_wait_s = 0, dp_wait_s = 0, optimizer_s = 0;
  double sync_wait_s = 0;  // at the step's one message between all ranks: for the slowest
  // Not empty: the loss or a gradient was NaN or infinite; says where. No weight was changed.
  std::string not_finite;
};

class Trainer {
 public:
  // Every rank calls this with the same options. REQUIRES: the plan is valid for the model.
  static Result<std::unique_ptr<Trainer>> create(GroupCache& groups, const TrainerOptions& options);

  // Trains on samples [consumed, consumed + global_batch). Any rank may ask the run to stop.
  Result<StepResult> step(const Dataset& data, std::int64_t consumed, bool stop = false);
  // Mean loss over the first `samples` held-out sequences (all, where there are fewer): the same
  // ones at every layout.
  Result<double> evaluate(const Dataset& data, std::int64_t samples);

  const Mesh& mesh() const { return mesh_; }
  const std::vector<std::unique_ptr<ChunkParameters>>& parameters() const { return parameters_; }

 private:
  explicit Trainer(const TrainerOptions& options) : options_(options) {}
  enum class Part { kTraining, kHeldOut };
  // `micro_batches` of `rows` sequences for this replica, of a run of samples that starts at
  // `first` and is dp times as long. Held-out samples from `end` on are stood in for by the first.
  Result<std::vector<MicroBatch>> load(const Dataset& data, Part part, std::int64_t first,
                                       std::int64_t micro_batches, std::int64_t rows,
                                       std::int64_t end = 0) const;
  // Moves the groups' waiting times into `result`.
  void take_waits(StepResult& result) const;
  std::string find_not_finite(const Tensor& losses, std::int64_t first_sample) const;

  TrainerOptions options_;
  Mesh mesh_;
  Schedule schedule_;
  std::unique_ptr<Partition> partition_;
  std::vector<std::unique_ptr<ChunkParameters>> parameters_;
  std::vector<std::unique_ptr<ModelChunk>> chunks_;
  std::unique_ptr<Pipeline> pipeline_;
  std::int64_t updates_ = 0;
};

}  // namespace copus
