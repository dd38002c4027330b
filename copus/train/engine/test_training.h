// For tests: small training runs, and the state of all ranks as whole tensors.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "copus/train/comm/rank_threads.h"
#include "copus/train/engine/trainer.h"
#include "copus/train/model/test_models.h"

namespace copus {

constexpr std::int64_t kSeqLen = 16, kBatch = 16;

inline TrainerOptions options_for(const std::string& model, const ParallelPlan& plan) {
  TrainerOptions options;
  options.model = testing_models::model_named(model);
  options.plan = plan;
  options.seq_len = kSeqLen;
  options.global_batch = kBatch;
  options.base_batch = kBatch;
  options.lr = {.peak = 1e-3, .floor = 1e-4, .warmup_samples = 80, .decay_samples = 960};
  options.bucket_elements = 4000;  // several buckets
  return options;
}

inline ParallelPlan plan_of(const std::string& text) {
  Result<PartialPlan> plan = parse_plan_text(text, "--plan");
  EXPECT_TRUE(plan.has_value()) << plan.error().message;
  return plan->plan;
}

inline Dataset open_builtin() {
  Result<Dataset> data = Dataset::open({"builtin"}, {.seq_len = kSeqLen, .seed = 7, .vocab = 251});
  EXPECT_TRUE(data.has_value()) << data.error().message;
  return std::move(data).value();
}

inline void train(Trainer& trainer, const Dataset& data, std::int64_t& consumed, int steps,
                  std::vector<double>* losses = nullptr, std::uint64_t* hash = nullptr) {
  for (int i = 0; i < steps; ++i) {
    const Result<StepResult> done = trainer.step(data, consumed);
    ASSERT_TRUE(done.has_value()) << done.error().message;
    ASSERT_EQ(done->not_finite, "");
    consumed += trainer.options().global_batch;
    if (losses != nullptr) losses->push_back(done->loss);
    if (hash != nullptr) *hash = add_hashes(*hash, done->data_hash);
  }
}

// Returns a copy of this rank's state.
inline std::vector<Tensor> state_of(const Trainer& trainer) {
  std::vector<Tensor> state;
  for (const auto& parameters : trainer.parameters()) {
    for (const Bucket& bucket : parameters->buckets()) {
      for (const Tensor& x : {bucket.values, bucket.master, bucket.moment1, bucket.moment2}) {
        state.push_back(x.clone());
      }
    }
  }
  return state;
}

inline bool equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return true;
}

// Whole tensors by name, put together from the parts of all ranks: weights, master, both moments.
class Whole {
 public:
  void add(const Trainer& trainer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& parameters : trainer.parameters()) {
      for (const Bucket& bucket : parameters->buckets()) {
        for (const PlacedTensor& tensor : bucket.tensors) {
          put("weight", tensor, bucket.values, 0, bucket.padded);
          put("master", tensor, bucket.master, bucket.owned_begin, bucket.owned_length);
          put("moment1", tensor, bucket.moment1, bucket.owned_begin, bucket.owned_length);
          put("moment2", tensor, bucket.moment2, bucket.owned_begin, bucket.owned_length);
        }
      }
    }
  }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  // `flat` holds the bucket's elements [begin, begin + length). Other elements are not changed.
  void put(const char* kind, const PlacedTensor& tensor, const Tensor& flat, std::int64_t begin,
           std::int64_t length) {
    Tensor& all = tensors_[fmt::format("{} {}", kind, tensor.spec.name)];
    if (!all.defined()) all = at::full(tensor.spec.shape, NAN);
    const std::int64_t dim = tensor.spec.cut == Cut::kColumns ? 1 : 0;
    const Tensor place = all.narrow(dim, tensor.shard.begin, tensor.shard.length);
    const std::int64_t from = std::max(tensor.offset, begin);
    const std::int64_t to = std::min(tensor.offset + tensor.size, begin + length);
    if (from >= to) return;
    Tensor part = at::full({tensor.size}, NAN);
    part.narrow(0, from - tensor.offset, to - from).copy_(flat.narrow(0, from - begin, to - from));
    part = part.view(local_shape(tensor.spec, tensor.shard)).narrow(dim, 0, tensor.shard.length);
    // All ranks that hold an element must hold the same value.
    const Tensor known = at::isfinite(place).logical_and(at::isfinite(part));
    EXPECT_TRUE(at::equal(place.masked_select(known), part.masked_select(known)))
        << kind << " " << tensor.spec.name;
    place.copy_(at::where(at::isfinite(part), part, place));
  }
  std::map<std::string, Tensor> tensors_;
  std::mutex mutex_;
};

inline void expect_same(const Whole& a, const Whole& b, const std::string& where) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const auto& [name, tensor] : a.tensors()) {
    EXPECT_TRUE(at::isfinite(tensor).all().item<bool>()) << name << " " << where;
    EXPECT_TRUE(at::equal(tensor, b.tensors().at(name))) << name << " " << where;
  }
}

}  // namespace copus
