// A model of Hugging Face's as the first checkpoint of a run.
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
  std::string checkpoint;            // its folder
  std::int64_t tensors = 0;          // of the source
  std::vector<std::string> formats;  // that those have
  std::vector<std::string> ignored;  // that are no weights
};

// Publishes RUN/checkpoints/step-0 with the weights of `folder` alone. Refuses a run directory that
// has checkpoints or events. `progress`: bytes of weights written so far.
Result<HfImported> import_from_hf(const std::string& folder, const std::string& run_dir,
                                  const std::function<void(std::int64_t)>& progress = {});

}  // namespace copus
