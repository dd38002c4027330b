#include "copus/train/save.h"

#include "copus/train/state_views.h"

namespace copus {
namespace {

const Tensor& array_of(const Bucket& bucket, StateArray kind) {
  if (kind == StateArray::kWeight) return bucket.master;
  return kind == StateArray::kMoment1 ? bucket.moment1 : bucket.moment2;
}

}  // namespace

void TrainerSaver::plan_for(const Trainer& trainer) {
  const TrainerOptions& o = trainer.options();
  if (plan_ && *plan_ == o.plan) return;
  const std::vector<TensorSpec> tensors = model_tensors(o.model);
  runs_ = shard_runs(o.model, o.plan, o.bucket_elements, trainer.mesh().rank);
  parts_.clear();
  elements_ = 0;
  for (const ShardRun& run : runs_) elements_ += run.stripe.size();
  for (const StateArray kind : kStateArrays) {
    for (const ShardRun& run : runs_) {
      parts_.push_back({kind, tensors[run.tensor].name, run.stripe});
    }
  }
  plan_ = o.plan;
}

void TrainerSaver::save(const Trainer& trainer, Manifest manifest) {
  COPUS_CHECK(!saver_.busy());
  plan_for(trainer);
  const at::NoGradGuard no_grad;
  const bool pinned = trainer.options().device.is_cuda();
  const std::int64_t size = elements_ * static_cast<std::int64_t>(std::size(kStateArrays));
  if (!buffer_.defined() || buffer_.numel() < size) {
    buffer_ = at::empty({size}, at::TensorOptions(at::kFloat).pinned_memory(pinned));
  }
  const TensorPlaces places(trainer.parameters(), model_tensors(trainer.options().model));
  std::int64_t at = 0;
  for (const StateArray kind : kStateArrays) {
    for (const ShardRun& run : runs_) {
      const TensorPlaces::Place& place = places[run.tensor];
      const FlatArray array{array_of(*place.bucket, kind), place.bucket->owned_begin};
      copy_blocks(block_views(array, *place.tensor, run.stripe),
                  buffer_.narrow(0, at, run.stripe.size()), Direction::kPack);
      at += run.stripe.size();
    }
  }
  SaveJob job;
  job.parts = parts_;
  job.data = {buffer_.data_ptr<float>(), static_cast<std::size_t>(size)};
  job.manifest = std::move(manifest);
  saver_.start(std::move(job));
}

Manifest manifest_of(const Trainer& trainer, std::int64_t step, std::int64_t samples, Json run) {
  const TrainerOptions& o = trainer.options();
  Manifest manifest;
  manifest.model = o.model;
  manifest.plan = o.plan;
  manifest.step = step;
  manifest.samples = samples;
  manifest.updates = trainer.updates();
  manifest.global_batch = o.global_batch;
  manifest.seq_len = o.seq_len;
  manifest.seed = o.seed;
  manifest.run = std::move(run);
  return manifest;
}

}  // namespace copus
