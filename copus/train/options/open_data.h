// Opens the data of a run, as its options say.
#pragma once

#include "copus/train/data/dataset.h"
#include "copus/train/options/run_options.h"

namespace copus {

// Opens the data and checks it as far as the first step and the first evaluation need it.
Result<Dataset> open_data(const RunOptions& options);

// Returns a hash of 64 samples that are spread from the first to the last. It differs for other
// data and for another order of samples.
std::uint64_t data_fingerprint(const Dataset& data);

}  // namespace copus
