// What a run that goes on from a checkpoint must have in common with it, and at which layout and
// batch it goes on.
#pragma once

#include "copus/train/checkpoint/reader.h"
#include "copus/train/checkpoint/run_state.h"
#include "copus/train/data/dataset.h"
#include "copus/train/options/run_options.h"

namespace copus {

// The options with which the run goes on from the checkpoint, over so many ranks: a run that adapts
// has the batch and the layout that it had got to. An error where the model or the data are others,
// or where the options do not allow what the run has got to.
Result<RunOptions> options_to_go_on(const RunOptions& options, const Dataset& data, int ranks,
                                    const CheckpointReader& reader, const RunState& state);

// The same error before ranks are started, each of which would say it: the newest checkpoint that
// can be opened is the one that they will take, unless it turns out to be damaged.
Result<void> check_resume(const RunOptions& options, const Dataset& data, int ranks);

}  // namespace copus
