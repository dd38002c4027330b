// Trainer::restore(): a run goes on from a checkpoint, at this layout, whatever layout wrote it.
#include <algorithm>
#include <vector>

#include "copus/interop/hf_config_writer.h"
#include "copus/train/checkpoint/reader.h"
#include "copus/train/state_views.h"
#include "copus/train/trainer.h"

namespace copus {
namespace {

class Loader {
 public:
  explicit Loader(const CheckpointReader& reader) : reader_(reader) {}

  // What the rank holds of a tensor: the values of its whole part, and the optimizer's state of
  // what it owns. With BF16 values those that it owns are made from the master later.
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
    if (stripe.empty()) return {};  // padding alone
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

Result<void> check_same_model(const ModelSpec& wanted, const CheckpointReader& reader) {
  const std::vector<TensorSpec> ours = model_tensors(wanted);
  const std::vector<TensorSpec> theirs = model_tensors(reader.manifest().model);
  for (std::size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    const auto text = [&](const std::vector<TensorSpec>& tensors) {
      if (i >= tensors.size()) return std::string("nothing");
      std::string shape;
      for (const std::int64_t n : tensors[i].shape)
        shape += fmt::format("{}{}", shape.empty() ? "" : "x", n);
      return fmt::format("{} of {}", tensors[i].name, shape);
    };
    if (text(ours) == text(theirs)) continue;
    return make_error("--model: got one with {}; want {}, as {} has it", text(ours), text(theirs),
                      reader.folder());
  }
  // What has no tensor of its own changes the weights' meaning all the same.
  const Json mine = hf_config_json(wanted), its = hf_config_json(reader.manifest().model);
  for (const char* key : {"rope_theta", "rope_scaling", "rms_norm_eps", "layer_norm_epsilon",
                          "hidden_act", "activation_function", "sliding_window"}) {
    const Json a = mine.value(key, Json()), b = its.value(key, Json());
    if (a == b) continue;
    return make_error("--model: got {} = {}; want {}, as {} has it", key, a.dump(), b.dump(),
                      reader.folder());
  }
  return {};
}

Result<std::unique_ptr<Trainer>> Trainer::restore(GroupCache& groups, const TrainerOptions& options,
                                                  const CheckpointReader& reader) {
  COPUS_TRY_VOID(check_trainable(options));
  COPUS_TRY_VOID(check_same_model(options.model, reader));
  std::unique_ptr<Trainer> trainer(new Trainer(options));
  COPUS_TRY(trainer->layout_, Layout::create(groups, options, ParameterStart::kUnset));
  const at::NoGradGuard no_grad;
  Loader loader(reader);
  for (const auto& own : trainer->parameters()) {
    for (const Bucket& bucket : own->buckets()) {
      for (const PlacedTensor& tensor : bucket.tensors) {
        COPUS_TRY_VOID(loader.load(bucket, tensor));
      }
    }
  }
  trainer->layout_->settle(options);
  trainer->updates_ = reader.manifest().updates;
  return trainer;
}

}  // namespace copus
