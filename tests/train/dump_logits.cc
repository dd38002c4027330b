// dump_logits CHECKPOINT DEVICE PRECISION BATCH SEQ_LEN OUT.safetensors
//
// Writes random tokens [BATCH, SEQ_LEN] and the logits [BATCH, SEQ_LEN, vocab] that the engine
// computes from them with a checkpoint's weights, on one rank. The logits are written in FP32, also
// if they were computed in BF16. Used by hf_test.py and hf_roundtrip.py.
#include <fmt/format.h>

#include <string>

#include "copus/train/device/device.h"
#include "copus/train/move/restore.h"
#include "tests/train/write_tensors.h"

namespace copus {
namespace {

Result<void> dump(const std::string& checkpoint, const std::string& device,
                  const std::string& precision, std::int64_t batch, std::int64_t seq_len,
                  const std::string& path) {
  COPUS_TRY(const CheckpointReader reader, CheckpointReader::open(checkpoint));
  TrainerOptions options;
  options.model = reader.manifest().model;
  options.seq_len = seq_len;
  options.global_batch = 1;  // nothing is trained
  options.compute = precision == "bf16" ? Compute::kBf16 : Compute::kFp32;
  COPUS_TRY(options.device,
            choose_device(device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu, 0, 1));
  Rendezvous rendezvous;
  rendezvous.store = local_store();
  GroupCache groups(rendezvous);
  COPUS_TRY(const auto trainer, restore_trainer(groups, options, reader));

  const Partition whole;
  const ModelChunk model(options.model, chunk_spec(options.model, options.plan, 0),
                         trainer->parameters()[0]->values(), whole, Recompute::kNone, seq_len);
  at::manual_seed(1);
  const Tensor tokens = at::randint(options.model.vocab, {batch, seq_len}, at::kLong);
  const at::NoGradGuard no_gradients;
  const Tensor logits = model.logits(model.forward(tokens.to(torch_device(options.device))));
  return write_tensors(path, {{"tokens", tokens}, {"logits", logits.to(at::kFloat)}});
}

}  // namespace
}  // namespace copus

int main(int argc, char** argv) {
  if (argc != 7) {
    fmt::print(stderr,
               "usage: dump_logits CHECKPOINT DEVICE PRECISION BATCH SEQ_LEN OUT.safetensors\n");
    return 2;
  }
  try {
    const auto done =
        copus::dump(argv[1], argv[2], argv[3], std::stoll(argv[4]), std::stoll(argv[5]), argv[6]);
    if (done) return 0;
    fmt::print(stderr, "error: {}\n", done.error().message);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
  }
  return 1;
}
