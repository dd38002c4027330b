// The data of a run, as its options ask for it.
#pragma once

#include "copus/train/data/dataset.h"
#include "copus/train/options/run_options.h"

namespace copus {

// Looked at as far as the first step and the first evaluation will need it.
Result<Dataset> open_data(const RunOptions& options);

// Over 64 samples from the first to the last: other data shows in it, and another order.
std::uint64_t data_fingerprint(const Dataset& data);

}  // namespace copus
