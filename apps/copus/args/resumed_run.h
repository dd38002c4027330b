// What copus train --resume takes from the directory of the run that goes on.
#pragma once

#include <optional>
#include <string>

#include "apps/copus/args/train_args.h"

namespace copus {

// Takes what neither the command line nor --config gives from RUN/config.toml. A plan for another
// number of ranks than are asked for now is left out.
Result<void> read_resumed_config(TrainArgs& args,
                                 const std::optional<RankEnvironment>& environment);
// The model of the newest checkpoint that says so; nothing where there is none.
std::optional<ModelSpec> resumed_model(const std::string& run_dir);

// A run that begins must not find checkpoints: it would remove them in time, or be taken for
// theirs.
Result<void> check_new(const std::string& run_dir);

}  // namespace copus
