// The checkpoints of a run: RUN/checkpoints/step-N. A save writes to a folder whose name begins
// with a dot, and renames it once it is complete and on disk. A removal renames it back to a name
// with a dot first. Copus never reads folders with such names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/train/checkpoint/manifest.h"

namespace copus {

struct PublishedCheckpoint {
  std::int64_t step = 0;
  std::string folder;
};

std::string checkpoints_folder(const std::string& run_dir);
std::string checkpoint_folder(const std::string& run_dir, std::int64_t step);
// The folder to which the `attempt`-th save of a process writes before it is published.
std::string partial_folder(const std::string& run_dir, std::int64_t step, std::int64_t attempt);

// All checkpoints by step, ascending; empty if the run has none yet. Does not open them, so damaged
// checkpoints are listed too.
Result<std::vector<PublishedCheckpoint>> list_checkpoints(const std::string& run_dir);

// Creates the folder of checkpoints and its parents, and checks that files can be created there.
Result<void> prepare_checkpoints(const std::string& run_dir);

// Writes manifest.json into a partial folder and makes the folder the checkpoint of its step. An
// older checkpoint of the same step is replaced. REQUIRES: the shards are in the folder and on
// disk.
Result<void> publish(const std::string& partial, const std::string& run_dir,
                     const Manifest& manifest);

// The checkpoints that are kept: the last `keep`, and forever those whose step is a multiple of
// `keep_every` (0: none).
struct Retention {
  std::int64_t keep = 2;
  std::int64_t keep_every = 0;
};
// Those of `steps` (ascending) that are to be removed. Never removes `published`, the newest
// checkpoint that is known to be complete.
std::vector<std::int64_t> to_remove(const std::vector<std::int64_t>& steps,
                                    const Retention& retention, std::int64_t published);
Result<void> apply_retention(const std::string& run_dir, const Retention& retention,
                             std::int64_t published);

// Renames a checkpoint that a run could not load to damaged-step-N, so that later runs skip it. An
// older folder of that name is replaced.
Result<void> set_aside(const std::string& run_dir, const std::string& folder);

// Removes what interrupted saves and removals have left. REQUIRES: no save is running here.
Result<void> clean_leftovers(const std::string& run_dir);

}  // namespace copus
