#include "copus/train/checkpoint/hf_export.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "copus/base/check.h"
#include "copus/base/json.h"
#include "copus/base/remove_tree.h"
#include "copus/base/whole_file.h"
#include "copus/interop/half_floats.h"
#include "copus/interop/safetensors.h"
#include "copus/spec/hf_config_writer.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/checkpoint/hf_weights.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

// One file holds tensors [begin, end) of the list.
struct HfShard {
  std::string file;
  std::size_t begin = 0, end = 0;
};

std::int64_t bytes_of(const HfTensor& tensor, const std::string& dtype) {
  return element_count(tensor.shape) * float_bytes(dtype);
}

// Splits the list in its order: a new file begins when the next tensor would exceed the limit. The
// files have the names that transformers gives them.
std::vector<HfShard> shards_of(const std::vector<HfTensor>& tensors,
                               const HfExportOptions& options) {
  std::vector<HfShard> shards(1);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t more = bytes_of(tensors[i], options.dtype);
    if (i > shards.back().begin && bytes + more > options.max_shard_bytes) {
      shards.push_back({.file = {}, .begin = i});
      bytes = 0;
    }
    bytes += more;
    shards.back().end = i + 1;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

Json index_json(const std::vector<HfTensor>& tensors, const std::vector<HfShard>& shards,
                std::int64_t bytes) {
  Json index;
  index["metadata"] = {{"total_size", bytes}};
  Json& map = index["weight_map"];
  for (const HfShard& shard : shards) {
    for (std::size_t i = shard.begin; i < shard.end; ++i) map[tensors[i].name] = shard.file;
  }
  return index;
}

Result<std::vector<float>> values_of(const CheckpointReader& checkpoint, const HfTensor& tensor) {
  std::vector<float> rows(static_cast<std::size_t>(element_count(tensor.shape)));
  std::size_t done = 0;
  for (const TensorSpec& part : tensor.parts) {
    const std::int64_t size = element_count(part.shape);
    const Stripe whole{.first_column = 0,
                       .columns = part.shape.size() == 2 ? part.shape[1] : 1,
                       .begin = 0,
                       .end = size};
    const std::span<float> out = std::span(rows).subspan(done, static_cast<std::size_t>(size));
    COPUS_TRY_VOID(checkpoint.read(StateArray::kWeight, part.name, whole, out));
    done += static_cast<std::size_t>(size);
  }
  if (!tensor.transposed) return rows;
  std::vector<float> turned(rows.size());
  transpose(rows.data(), tensor.shape[1], tensor.shape[0], turned.data());
  return turned;
}

Result<void> write_values(SafetensorsWriter& writer, const std::string& dtype,
                          std::span<const float> values) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;  // elements
  std::vector<std::byte> bytes;
  while (!values.empty()) {
    const std::span<const float> block = values.first(std::min(kBlock, values.size()));
    bytes.resize(block.size() * static_cast<std::size_t>(float_bytes(dtype)));
    narrow(dtype, block, bytes);
    COPUS_TRY_VOID(writer.write(bytes));
    values = values.subspan(block.size());
  }
  return {};
}

class Export {
 public:
  Export(const CheckpointReader& checkpoint, const HfExportOptions& options)
      : checkpoint_(checkpoint), options_(options) {}

  Result<void> write(const fs::path& folder) {
    const ModelSpec& model = checkpoint_.manifest().model;
    COPUS_TRY(const std::vector<HfTensor> tensors, hf_tensors(model));
    const std::vector<HfShard> shards = shards_of(tensors, options_);
    // The exported model must allow sequences as long as those that it was trained with.
    ModelSpec trained = model;
    trained.max_positions = std::max(model.max_positions, checkpoint_.manifest().seq_len);
    COPUS_TRY_VOID(
        write_text(folder, "config.json",
                   hf_config_json(trained, options_.dtype == "F32" ? "float32" : "bfloat16")));
    for (const HfShard& shard : shards) {
      const auto first = tensors.begin() + static_cast<std::ptrdiff_t>(shard.begin);
      const auto last = tensors.begin() + static_cast<std::ptrdiff_t>(shard.end);
      COPUS_TRY_VOID(write_shard(folder, shard.file, {first, last}));
    }
    if (shards.size() > 1) {
      COPUS_TRY_VOID(write_text(folder, "model.safetensors.index.json",
                                index_json(tensors, shards, exported_.bytes)));
    }
    return {};
  }

  HfExported take() { return std::move(exported_); }

 private:
  Result<void> write_text(const fs::path& folder, const std::string& name, const Json& json) {
    exported_.files.push_back(name);
    return write_whole_file((folder / name).string(), json.dump(2) + "\n");
  }

  Result<void> write_shard(const fs::path& folder, const std::string& name,
                           std::span<const HfTensor> tensors) {
    std::vector<SafetensorsArray> arrays;
    arrays.reserve(tensors.size());
    for (const HfTensor& tensor : tensors) {
      arrays.push_back({.name = tensor.name, .dtype = options_.dtype, .shape = tensor.shape});
    }
    COPUS_TRY(SafetensorsWriter writer,
              SafetensorsWriter::create((folder / name).string(), arrays, {{"format", "pt"}}));
    for (const HfTensor& tensor : tensors) {
      COPUS_TRY(const std::vector<float> values, values_of(checkpoint_, tensor));
      COPUS_TRY_VOID(write_values(writer, options_.dtype, values));
      exported_.bytes += bytes_of(tensor, options_.dtype);
      ++exported_.tensors;
      if (options_.progress) options_.progress(exported_.bytes);
    }
    COPUS_TRY(const SafetensorsWriter::Written written, writer.finish());
    static_cast<void>(written);
    exported_.files.push_back(name);
    return {};
  }

  const CheckpointReader& checkpoint_;
  const HfExportOptions& options_;
  HfExported exported_;
};

}  // namespace

Result<HfExported> export_to_hf(const CheckpointReader& checkpoint, const std::string& folder,
                                const HfExportOptions& options) {
  COPUS_CHECK(options.dtype == "F32" || options.dtype == "BF16");
  // "out/" and "out" are the same folder. The partial folder lies beside it, on the same disk, so
  // that it can be renamed.
  fs::path target = fs::path(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  if (target.empty() || target.filename() == "." || target.filename() == "..") {
    return field_error("--out", "got \"{}\"; want the name of a new folder", folder);
  }
  std::error_code failed;
  if (fs::exists(target, failed) &&
      (!fs::is_directory(target, failed) || !fs::is_empty(target, failed))) {
    return make_error("{}: exists; want a new folder, or an empty one", folder);
  }
  fs::path beside = target;
  beside.replace_filename(fmt::format(".{}.{}.partial", target.filename().string(), ::getpid()));
  fs::create_directories(beside, failed);
  if (failed) return make_error("{}: cannot be created: {}", folder, failed.message());

  Export job(checkpoint, options);
  Result<void> written = job.write(beside);
  if (written) written = sync_folder(beside.string());
  if (written) {
    fs::rename(beside, target, failed);  // replaces an empty folder, but no other
    if (failed) written = make_error("{}: cannot be created: {}", folder, failed.message());
  }
  if (!written) {
    std::error_code ignored;
    remove_tree(beside, ignored);
    return written.error();
  }
  const fs::path parent = target.parent_path();
  COPUS_TRY_VOID(sync_folder(parent.empty() ? "." : parent.string()));
  return job.take();
}

}  // namespace copus
