// The oracle: the fastest way through all configurations, known from the end.
#pragma once

#include <vector>

#include "copus/sim/sim_job.h"

namespace copus {

// Dynamic programming over progress (a grid fine in loss) and configuration: the least time to
// every loss, switches paid for, with full knowledge of step times, pauses and critical batches,
// and no noise. It may begin anywhere. The crossings are each loss's own optimum; phases and points
// are of the way to the last. REQUIRES: candidates; losses that fall.
SimOutcome fastest_way(const World& world, const std::vector<Candidate>& candidates,
                       const std::vector<double>& losses);

}  // namespace copus
