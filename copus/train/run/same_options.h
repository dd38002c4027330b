// Checks that all ranks of a run have the same options and the same data.
#pragma once

#include "copus/train/comm/comm.h"
#include "copus/train/data/dataset.h"
#include "copus/train/options/run_options.h"

namespace copus {

// Compares this rank's options and data with those of rank 0. If a launcher starts the ranks, each
// has its own command line. With another seed on one of them, the replicas would drift apart
// without an error.
Result<void> check_same_options(const Rendezvous& where, const RunOptions& options,
                                const Dataset& data);

}  // namespace copus
