// All ranks of a run have the same options and the same data, or none trains.
#pragma once

#include "copus/train/comm/comm.h"
#include "copus/train/data/dataset.h"
#include "copus/train/options/run_options.h"

namespace copus {

// Where a launcher starts the ranks each has its own command line: with another seed on one of them
// the replicas would drift apart without a word.
Result<void> check_same_options(const Rendezvous& where, const RunOptions& options,
                                const Dataset& data);

}  // namespace copus
