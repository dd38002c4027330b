#include "copus/train/save.h"

#include <cstring>

#include "copus/train/state_views.h"

namespace copus {
namespace {

const Tensor& array_of(const Bucket& bucket, StateArray kind) {
  if (kind == StateArray::kWeight) return bucket.master;
  return kind == StateArray::kMoment1 ? bucket.moment1 : bucket.moment2;
}

// On the host straight from memory to memory: long copies there leave the caches alone.
void copy_run(const FlatArray& array, const PlacedTensor& tensor, const Stripe& stripe,
              const Tensor& out) {
  if (!array.flat.is_cpu()) {
    copy_blocks(block_views(array, tensor, stripe), out, Direction::kPack);
    return;
  }
  const float* from = array.flat.data_ptr<float>() - array.begin;
  float* to = out.data_ptr<float>();
  for (const Block& block : blocks_of(tensor, stripe)) {
    for (std::int64_t row = 0; row < block.rows; ++row, to += block.columns) {
      std::memcpy(to, from + block.offset + row * block.stride,
                  static_cast<std::size_t>(block.columns) * sizeof(float));
    }
  }
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

void TrainerSaver::prepare(const Trainer& trainer) {
  plan_for(trainer);
  const std::int64_t size = elements_ * static_cast<std::int64_t>(std::size(kStateArrays));
  if (buffer_.defined() && buffer_.numel() >= size) return;
  const bool pinned = trainer.options().device.is_cuda();
  buffer_.reset();
  buffer_ = at::empty({size}, at::TensorOptions(at::kFloat).pinned_memory(pinned));
  buffer_.zero_();  // every page is there now
}

void TrainerSaver::save(const Trainer& trainer, Manifest manifest) {
  COPUS_CHECK(!saver_.busy());
  prepare(trainer);
  const at::NoGradGuard no_grad;
  const TensorPlaces places(trainer.parameters(), model_tensors(trainer.options().model));
  std::int64_t at = 0;
  for (const StateArray kind : kStateArrays) {
    for (const ShardRun& run : runs_) {
      const TensorPlaces::Place& place = places[run.tensor];
      const FlatArray array{array_of(*place.bucket, kind), place.bucket->owned_begin};
      copy_run(array, *place.tensor, run.stripe, buffer_.narrow(0, at, run.stripe.size()));
      at += run.stripe.size();
    }
  }
  SaveJob job;
  job.parts = parts_;
  job.data = {buffer_.data_ptr<float>(), static_cast<std::size_t>(at)};
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
