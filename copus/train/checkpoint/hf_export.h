// Exports the weights of a checkpoint in the format that Hugging Face's transformers loads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/train/checkpoint/reader.h"

namespace copus {

struct HfExportOptions {
  std::string dtype = "BF16";                       // or F32
  std::int64_t max_shard_bytes = 5'000'000'000;     // of tensors; a larger tensor gets its own file
  std::function<void(std::int64_t)> progress = {};  // bytes of tensors written so far
};

struct HfExported {
  std::vector<std::string> files;  // names in the folder
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  // of tensors
};

// Writes config.json and model.safetensors (or several files and their index) into `folder`, which
// must be missing or empty. Writes to a folder beside it and renames that at the end, so `folder`
// is never incomplete. Holds one tensor in memory at a time, and at most two copies of it.
Result<HfExported> export_to_hf(const CheckpointReader& checkpoint, const std::string& folder,
                                const HfExportOptions& options);

}  // namespace copus
