// copus train's arguments for checkpoints, and how a run is resumed from its directory.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "copus/train/launch/environment.h"
#include "copus/train/run/run.h"

namespace copus {

struct TrainArgs;

// Text until resolved, so that a bad value gets our message.
struct CheckpointArgs {
  std::string every, keep, keep_every;
  bool resume = false, other_data = false;
  // Given now, and not by the run that is resumed.
  bool model_given = false, plan_given = false, batch_given = false, lr_given = false;
  bool ends_adapting = false;  // --adapt off
};

void add_checkpoint_options(CLI::App& command, CheckpointArgs& args);

// Before any file is read: what the command line itself says.
void note_given(TrainArgs& args);
// Takes what the command line does not give from RUN/config.toml. A plan for another number of
// ranks than are asked for now is left out.
Result<void> apply_resumed_config(CLI::App& command, TrainArgs& args,
                                  const std::optional<RankEnvironment>& environment);
// The model of the newest checkpoint that says so; nothing where there is none.
std::optional<ModelSpec> resumed_model(const std::string& run_dir);

// A run that begins must not find checkpoints: it would remove them in time, or be taken for
// theirs.
Result<void> check_new(const std::string& run_dir);

Result<CheckpointOptions> resolve_checkpoints(const CheckpointArgs& args);

// Key and value as --config reads them.
std::vector<std::pair<std::string, Json>> checkpoint_config(const CheckpointOptions& options);

}  // namespace copus
