#include "copus/train/move/restore.h"

#include <algorithm>
#include <vector>

#include "copus/train/checkpoint/same_model.h"
#include "copus/train/move/state_views.h"

namespace copus {
namespace {

class Loader {
 public:
  explicit Loader(const CheckpointReader& reader) : reader_(reader) {}

  // Loads the values of the rank's whole part of a tensor, and the optimizer state of the elements
  // that it owns. In BF16, the owned values are computed from the master later.
  Result<void> load(const Bucket& bucket, const PlacedTensor& tensor) {
    COPUS_TRY_VOID(fill(StateArray::kWeight, {bucket.values, 0}, tensor, {0, tensor.size}));
    const std::int64_t owned_end = bucket.owned_begin + bucket.owned_length;
    const Range owned{std::max(tensor.offset, bucket.owned_begin) - tensor.offset,
                      std::min(tensor.offset + tensor.size, owned_end) - tensor.offset};
    if (owned.begin >= owned.end) return {};
    if (bucket.values.scalar_type() != at::kFloat) {
      COPUS_TRY_VOID(fill(StateArray::kWeight, {bucket.master, bucket.owned_begin}, tensor, owned));
    }
    COPUS_TRY_VOID(fill(StateArray::kMoment1, {bucket.moment1, bucket.owned_begin}, tensor, owned));
    return fill(StateArray::kMoment2, {bucket.moment2, bucket.owned_begin}, tensor, owned);
  }

 private:
  Result<void> fill(StateArray kind, const FlatArray& array, const PlacedTensor& tensor,
                    const Range& local) {
    const Stripe stripe = stripe_of(tensor.spec, tensor.shard, local);
    if (stripe.empty()) return {};  // only padding
    const std::vector<Tensor> blocks = block_views(array, tensor, stripe);
    const auto size = static_cast<std::size_t>(stripe.size());
    if (const auto run = as_run(blocks); run && run->scalar_type() == at::kFloat) {
      return reader_.read(kind, tensor.spec.name, stripe, {run->data_ptr<float>(), size});
    }
    staging_.resize(std::max(staging_.size(), size));
    COPUS_TRY_VOID(reader_.read(kind, tensor.spec.name, stripe, std::span(staging_).first(size)));
    copy_blocks(blocks, at::from_blob(staging_.data(), {stripe.size()}, at::kFloat),
                Direction::kUnpack);
    return {};
  }

  const CheckpointReader& reader_;
  std::vector<float> staging_;
};

}  // namespace

Result<std::unique_ptr<Trainer>> restore_trainer(GroupCache& groups, const TrainerOptions& options,
                                                 const CheckpointReader& reader) {
  COPUS_TRY_VOID(check_trainable(options));
  COPUS_TRY_VOID(check_same_model(options.model, reader));
  COPUS_TRY(std::unique_ptr<Layout> layout,
            Layout::create(groups, options, ParameterStart::kUnset));
  const at::NoGradGuard no_grad;
  Loader loader(reader);
  for (const auto& own : layout->parameters) {
    for (const Bucket& bucket : own->buckets()) {
      for (const PlacedTensor& tensor : bucket.tensors) {
        COPUS_TRY_VOID(loader.load(bucket, tensor));
      }
    }
  }
  return Trainer::with(options, std::move(layout), reader.manifest().updates);
}

}  // namespace copus
