#include "copus/train/checkpoint/weights_import.h"

#include <filesystem>
#include <system_error>

#include "copus/base/remove_tree.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/checkpoint/shard.h"

namespace copus {

Result<void> write_weights_checkpoint(const std::string& run_dir, Manifest manifest,
                                      const TensorSource& source) {
  const std::vector<TensorSpec> tensors = model_tensors(manifest.model);
  std::vector<SafetensorsArray> arrays;
  for (const TensorSpec& tensor : tensors) {
    const std::int64_t size = element_count(tensor.shape);
    const std::int64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
    const ShardPart part{StateArray::kWeight, tensor.name, {0, columns, 0, size}};
    arrays.push_back({.name = part_name(part), .shape = {size}});
  }
  COPUS_TRY_VOID(prepare_checkpoints(run_dir));
  const std::string partial = partial_folder(run_dir, manifest.step, 0);
  const auto write = [&]() -> Result<void> {
    std::error_code error;
    std::filesystem::create_directories(partial, error);
    if (error) return make_error("{}: cannot be created: {}", partial, error.message());
    const std::string name = shard_name(0);
    COPUS_TRY(SafetensorsWriter writer,
              SafetensorsWriter::create((std::filesystem::path(partial) / name).string(),
                                        std::move(arrays), {{"format", "copus-checkpoint"}}));
    std::vector<float> values;
    for (const TensorSpec& tensor : tensors) {
      values.resize(static_cast<std::size_t>(element_count(tensor.shape)));
      COPUS_TRY_VOID(source(tensor, values));
      COPUS_TRY_VOID(writer.write(std::as_bytes(std::span(values))));
    }
    COPUS_TRY(const SafetensorsWriter::Written written, writer.finish());
    manifest.optimizer = false;
    manifest.updates = 0;
    manifest.files = {{name, written.bytes, written.xxh3}};
    return publish(partial, run_dir, manifest);
  };
  Result<void> written = write();
  if (!written) {
    std::error_code ignored;
    remove_tree(partial, ignored);
  }
  return written;
}

}  // namespace copus
