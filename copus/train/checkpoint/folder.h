// The checkpoints of a run: RUN/checkpoints/step-N. One appears by a rename, whole and on disk;
// what is being written or removed has a name that begins with a dot and is never read.
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
// Where the `attempt`-th save of a process writes, until it is published.
std::string partial_folder(const std::string& run_dir, std::int64_t step, std::int64_t attempt);

// By step, ascending. None where the run has none yet. Not opened: what is damaged is listed too.
Result<std::vector<PublishedCheckpoint>> list_checkpoints(const std::string& run_dir);

// Creates the folder and its parents, and checks that files can be made there.
Result<void> prepare_checkpoints(const std::string& run_dir);

// Writes manifest.json into a partial folder whose files are there and on disk, and makes it the
// checkpoint of its step. One that is there already is replaced.
Result<void> publish(const std::string& partial, const std::string& run_dir,
                     const Manifest& manifest);

// Which checkpoints stay: the last `keep`, and those whose step is a multiple of `keep_every` for
// ever (0: none).
struct Retention {
  std::int64_t keep = 2;
  std::int64_t keep_every = 0;
};
// Those of `steps`, ascending, that are to go; never `published`, the newest that is known to be
// whole.
std::vector<std::int64_t> to_remove(const std::vector<std::int64_t>& steps,
                                    const Retention& retention, std::int64_t published);
Result<void> apply_retention(const std::string& run_dir, const Retention& retention,
                             std::int64_t published);

// A checkpoint that a run could not go on from: kept beside, as damaged-step-N, for whoever wants
// to look; it is no checkpoint any more, and in nobody's way. One that is there already is
// replaced.
Result<void> set_aside(const std::string& run_dir, const std::string& folder);

// Removes what a save or a removal that was cut short has left. REQUIRES: nobody saves here now.
Result<void> clean_leftovers(const std::string& run_dir);

}  // namespace copus
