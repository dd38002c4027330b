// What copus train --resume reads from the directory of the run that it continues.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/copus/args/train_args.h"
#include "copus/events/event.h"

namespace copus {

// Reads from RUN/config.toml the options that neither the command line nor --config gives. A plan
// for another number of ranks is not read.
Result<void> read_resumed_config(TrainArgs& args,
                                 const std::optional<RankEnvironment>& environment);
// Returns the options whose values in RUN/config.toml differ from those in the config.toml that
// `args` would give, except for --run-dir and for defaults that RUN/config.toml lacks. REQUIRES:
// resolve_run() has resolved `args`.
std::vector<OptionChange> changed_options(const std::string& run_dir, const TrainArgs& args);
// Returns the model of the newest readable checkpoint; nothing if there is none.
std::optional<ModelSpec> resumed_model(const std::string& run_dir);

// Checks that the directory of a new run has no checkpoints of an earlier one. The new run would
// later delete them, or --resume would take them for checkpoints of the new run.
Result<void> check_no_checkpoints(const std::string& run_dir);

}  // namespace copus
