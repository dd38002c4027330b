// What a run prints when it begins or continues, and the first event that it writes.
#pragma once

#include "copus/train/data/dataset.h"
#include "copus/train/run/run_log.h"
#include "copus/train/run/start.h"

namespace copus {

// Prints what no event prints: the model, the ranks, the layout and the data, and the
// configurations that an adapting run chooses from. A run that continues prints them too, because
// its `restart` event has no model and no data.
void introduce(const RunLog& log, const RunOptions& options, const RunStart& start,
               const Dataset& data);

// Returns the run's `start` event, or its `restart` event if it continues from a checkpoint.
Event begin_event(const RunOptions& options, const RunStart& start, const Dataset& data);

}  // namespace copus
