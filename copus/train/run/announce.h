// What a run says as it begins or goes on: lines for a person that no event has, and its first
// event.
#pragma once

#include "copus/train/data/dataset.h"
#include "copus/train/run/run_log.h"
#include "copus/train/run/start.h"

namespace copus {

// The model, the ranks, the layout, the data; what adapting chooses from. A run that goes on says
// them too, though its `restart` event has no model and no data.
void introduce(const RunLog& log, const RunOptions& options, const RunStart& start,
               const Dataset& data);

// Its `start` event, or `restart`.
Event begin_event(const RunOptions& options, const RunStart& start, const Dataset& data);

}  // namespace copus
