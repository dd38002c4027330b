// dump_gradients CONFIG.json SEQ_LEN BATCH SEED OUT_DIR
//
// Runs one forward and backward pass of the engine on one rank in FP32. Writes
// OUT_DIR/dump.safetensors: tokens and targets [BATCH, SEQ_LEN], loss [], and for every logical
// tensor weight/NAME and gradient/NAME. reference.py computes the same without the engine and
// compares.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "copus/spec/hf_config.h"
#include "copus/train/engine/trainer.h"
#include "tests/train/write_tensors.h"

namespace copus {
namespace {

Tensor part_of(const Tensor& flat, const PlacedTensor& tensor) {
  return flat.narrow(0, tensor.offset, tensor.size).view(tensor.spec.shape);
}

// Replaces the initial weights, which would hide mistakes: their norms are all ones, their biases
// all zeros, and their predictions nearly uniform. With the new weights each tensor matters, and
// activations and logits are of order one.
void scatter_weights(const ChunkParameters& parameters) {
  for (const Bucket& bucket : parameters.buckets()) {
    for (const PlacedTensor& tensor : bucket.tensors) {
      Tensor part = part_of(bucket.values, tensor);
      if (part.dim() == 1) {
        part.normal_(tensor.spec.init_value, 0.3);
      } else {
        const bool table = tensor.spec.name.starts_with("embed.");
        part.normal_(0, table ? 0.25 : 1.2 / std::sqrt(static_cast<double>(part.size(1))));
      }
    }
  }
}

Result<void> dump(const std::string& config, std::int64_t seq_len, std::int64_t batch,
                  std::uint64_t seed, const std::string& folder) {
  TrainerOptions options;
  COPUS_TRY(options.model, load_model(config));
  options.seq_len = seq_len;
  COPUS_TRY_VOID(check_trainable(options));
  const ModelSpec& model = options.model;
  if (seq_len < 1 || seq_len > model.max_positions || batch < 1) {
    return make_error("SEQ_LEN, BATCH: got {}, {}; want 1 or more, and at most {} positions",
                      seq_len, batch, model.max_positions);
  }

  Rendezvous rendezvous;
  rendezvous.store = local_store();
  GroupCache groups(rendezvous);
  COPUS_TRY(const Mesh mesh, Mesh::create(groups, options.plan, model));
  const ChunkSpec chunk = chunk_spec(model, options.plan, 0);
  at::manual_seed(seed);
  // Small buckets: with several of them, a tensor at a wrong place changes the result.
  ChunkParameters parameters(model, chunk, mesh, {.bucket_elements = 10'000, .seed = seed});
  scatter_weights(parameters);
  const Partition whole;
  const ModelChunk one(model, chunk, parameters.values(), whole, Recompute::kNone, seq_len);

  const Tensor text = at::randint(model.vocab, {batch, seq_len + 1}, at::kLong);
  const Tensor tokens = text.narrow(1, 0, seq_len).contiguous();
  const Tensor targets = text.narrow(1, 1, seq_len).contiguous();
  parameters.zero_gradients();
  const Tensor loss = one.loss(one.forward(tokens), targets);
  torch::autograd::backward({loss}, {});

  NamedTensors tensors{{"tokens", tokens}, {"targets", targets}, {"loss", loss.detach()}};
  for (const Bucket& bucket : parameters.buckets()) {
    for (const PlacedTensor& tensor : bucket.tensors) {
      tensors.emplace_back("weight/" + tensor.spec.name, part_of(bucket.values, tensor));
      tensors.emplace_back("gradient/" + tensor.spec.name, part_of(bucket.gradients, tensor));
    }
  }
  return write_tensors((std::filesystem::path(folder) / "dump.safetensors").string(), tensors);
}

}  // namespace
}  // namespace copus

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "usage: dump_gradients CONFIG.json SEQ_LEN BATCH SEED OUT_DIR\n");
    return 2;
  }
  try {
    const auto done = copus::dump(argv[1], std::stoll(argv[2]), std::stoll(argv[3]),
                                  std::stoull(argv[4]), argv[5]);
    if (done) return 0;
    fmt::print(stderr, "error: {}\n", done.error().message);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
  }
  return 1;
}
