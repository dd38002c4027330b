// Imports a Hugging Face model as the first checkpoint of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/spec/model_spec.h"

namespace copus {

struct HfImported {
  ModelSpec model;
  std::string checkpoint;            // the folder of the checkpoint
  std::int64_t tensors = 0;          // weight tensors in the source
  std::vector<std::string> formats;  // of those tensors
  std::vector<std::string> ignored;  // tensors of the source that are not weights
};

// Publishes RUN/checkpoints/step-0 with the weights of `folder` and no optimizer state. Refuses a
// run directory that has checkpoints, events or a config.toml. Calls `progress` with the bytes of
// weights written so far.
Result<HfImported> import_from_hf(const std::string& folder, const std::string& run_dir,
                                  const std::function<void(std::int64_t)>& progress = {});

}  // namespace copus
