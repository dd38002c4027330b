// What the subcommands of copus checkpoint share: the choice of checkpoints by a path, and
// arguments.
#pragma once

#include <string>
#include <vector>

#include "apps/copus/args/shared_options.h"
#include "copus/args/option.h"
#include "copus/base/result.h"
#include "copus/train/checkpoint/folder.h"

namespace copus {

// One checkpoint, or all checkpoints of a run by step.
struct CheckpointChoice {
  bool is_run = false;
  std::vector<PublishedCheckpoint> checkpoints;  // at least one
};
// `path`: a checkpoint, or a run directory.
Result<CheckpointChoice> choose_checkpoints(const std::string& path);

struct CheckpointLookArgs : OptionGroup {
  Option<std::string> path{this, "path", text("PATH"),
                           "a checkpoint, or a run directory for all its checkpoints", Required()};
  JsonOption json{this};
};
int inspect_checkpoints(const CheckpointLookArgs& args);
int verify_checkpoints(const CheckpointLookArgs& args);

}  // namespace copus
