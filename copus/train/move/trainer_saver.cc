#include "copus/train/move/trainer_saver.h"

#include <chrono>
#include <cstring>
#include <future>

#include "copus/base/seconds_since.h"
#include "copus/train/move/state_views.h"

namespace copus {
namespace {

const Tensor& array_of(const Bucket& bucket, StateArray kind) {
  if (kind == StateArray::kWeight) return bucket.master;
  return kind == StateArray::kMoment1 ? bucket.moment1 : bucket.moment2;
}

// Rows to copy in host memory. They are copied by memcpy, whose long copies bypass the caches.
struct RowCopy {
  const float* from = nullptr;
  float* to = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
};

void add_copies(const FlatArray& array, const PlacedTensor& tensor, const Stripe& stripe, float* to,
                std::vector<RowCopy>& copies) {
  const float* from = array.flat.data_ptr<float>() - array.begin;
  for (const Block& block : blocks_of(tensor, stripe)) {
    copies.push_back({from + block.offset, to, block.rows, block.columns, block.stride});
    to += block.rows * block.columns;
  }
}

void run_copies(const std::vector<RowCopy>& copies) {
  for (const RowCopy& copy : copies) {
    for (std::int64_t row = 0; row < copy.rows; ++row) {
      std::memcpy(copy.to + row * copy.columns, copy.from + row * copy.stride,
                  static_cast<std::size_t>(copy.columns) * sizeof(float));
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
  buffer_.zero_();  // touches every page, so that the system maps it now
}

void TrainerSaver::save(Trainer& trainer, Manifest manifest) {
  COPUS_CHECK(!saver_.busy());
  const auto begin = std::chrono::steady_clock::now();
  prepare(trainer);
  const at::NoGradGuard no_grad;
  const TensorPlaces places(trainer.parameters(), model_tensors(trainer.options().model));
  const bool on_host = trainer.options().device.is_cpu();
  std::vector<RowCopy> copies;
  std::int64_t at = 0;
  for (const StateArray kind : kStateArrays) {
    for (const ShardRun& run : runs_) {
      const TensorPlaces::Place& place = places[run.tensor];
      const FlatArray array{array_of(*place.bucket, kind), place.bucket->owned_begin};
      const Tensor out = buffer_.narrow(0, at, run.stripe.size());
      if (on_host) {
        add_copies(array, *place.tensor, run.stripe, out.data_ptr<float>(), copies);
      } else {
        copy_blocks(block_views(array, *place.tensor, run.stripe), out, Direction::kPack);
      }
      at += run.stripe.size();
    }
  }
  SaveJob job;
  job.parts = parts_;
  job.data = {buffer_.data_ptr<float>(), static_cast<std::size_t>(at)};
  job.manifest = std::move(manifest);
  held_up_ = std::make_shared<Seconds>();
  if (on_host) {
    job.ready = std::async(std::launch::async, [copies = std::move(copies)] {
                  run_copies(copies);
                }).share();
    trainer.set_before_change([copied = job.ready, held_up = held_up_] {
      if (copied.wait_for(std::chrono::seconds(0)) == std::future_status::ready) return;
      const auto asked = std::chrono::steady_clock::now();
      copied.wait();
      *held_up += seconds_since(asked);
    });
  }
  saver_.start(std::move(job));
  *held_up_ += seconds_since(begin);
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
