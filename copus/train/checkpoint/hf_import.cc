#include "copus/train/checkpoint/hf_import.h"

#include <filesystem>

#include "copus/events/event_log.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/checkpoint/hf_source.h"
#include "copus/train/checkpoint/weights_import.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

Result<void> check_new(const std::string& run_dir) {
  COPUS_TRY(const std::vector<PublishedCheckpoint> found, list_checkpoints(run_dir));
  if (!found.empty()) {
    return make_error("{}: got a run with checkpoints (step {}); want a new run directory", run_dir,
                      found.back().step);
  }
  for (const fs::path& file : {fs::path(events_path(run_dir)), fs::path(run_dir) / "config.toml"}) {
    std::error_code ignored;
    if (fs::exists(file, ignored)) {
      return make_error("{}: got a run that has begun ({}); want a new run directory", run_dir,
                        file.filename().string());
    }
  }
  return {};
}

}  // namespace

Result<HfImported> import_from_hf(const std::string& folder, const std::string& run_dir,
                                  const std::function<void(std::int64_t)>& progress) {
  COPUS_TRY_VOID(check_new(run_dir));
  COPUS_TRY(const HfSource source, HfSource::open(folder));
  Manifest manifest;
  manifest.model = source.model();
  manifest.seq_len = source.model().max_positions;
  manifest.run["imported_from"] = folder;
  std::int64_t bytes = 0;
  const auto read = [&](const TensorSpec& tensor, std::span<float> out) -> Result<void> {
    COPUS_TRY_VOID(source.read(tensor.name, out));
    bytes += static_cast<std::int64_t>(out.size_bytes());
    if (progress) progress(bytes);
    return {};
  };
  COPUS_TRY_VOID(write_weights_checkpoint(run_dir, manifest, read));
  return HfImported{.model = source.model(),
                    .checkpoint = checkpoint_folder(run_dir, manifest.step),
                    .tensors = source.tensors(),
                    .formats = source.formats(),
                    .ignored = source.ignored()};
}

}  // namespace copus
