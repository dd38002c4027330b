// The rules for a run that continues from a checkpoint: what must be the same as in the checkpoint,
// and with which layout and batch the run continues.
#pragma once

#include "copus/train/checkpoint/reader.h"
#include "copus/train/checkpoint/run_state.h"
#include "copus/train/data/dataset.h"
#include "copus/train/options/run_options.h"

namespace copus {

// Returns the options with which the run continues from the checkpoint on `ranks` ranks. A run that
// adapts continues with the batch and layout that it had reached. Returns an error if the model or
// the data differ, or if the options exclude the batch or layout that the run had reached.
Result<RunOptions> options_to_go_on(const RunOptions& options, const Dataset& data, int ranks,
                                    const CheckpointReader& reader, const RunState& state);

// Finds the error of options_to_go_on() before any rank is started, so that it is reported once and
// not by each rank. Checks the newest checkpoint that can be opened: the ranks will use it unless
// it turns out to be damaged.
Result<void> check_resume(const RunOptions& options, const Dataset& data, int ranks);

}  // namespace copus
