// The oracle: the fastest sequence of configurations, found with full knowledge of the run.
#pragma once

#include <vector>

#include "copus/sim/sim_job.h"

namespace copus {

// Returns the least time to every loss, pauses of switches included, by dynamic programming over
// progress (a grid that is fine in loss) and configuration. It knows step times, pauses and
// critical batches, and has no noise. It may begin in any configuration. The time of each crossing
// is the optimum for that loss; phases and points are those of the fastest way to the last loss.
// REQUIRES: candidates is not empty; losses fall.
SimOutcome fastest_way(const World& world, const std::vector<Candidate>& candidates,
                       const std::vector<double>& losses);

}  // namespace copus
