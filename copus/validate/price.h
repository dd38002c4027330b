// A measured run, priced: what the cost model says of it, given a framework's profile.
#pragma once

#include <optional>

#include "copus/cost/framework.h"
#include "copus/cost/step.h"
#include "copus/validate/measured.h"

namespace copus {

struct RunPrice {
  StepEstimate estimate;
  Seconds step_time;
  Bytes peak_memory;  // of the rank that the table measured, or the one that needs most
  bool fits = false;  // every rank within its GPU's memory
};

// The run's cluster, with what is known of the network that the framework's runs had.
ClusterSpec cluster_of_run(const MeasuredRun& run, const FrameworkProfile& profile);

// Nothing where run.problem says why.
std::optional<RunPrice> price(const MeasuredRun& run, const FrameworkProfile& profile);
// On another cluster of the same shape. `max_actions` as StepModel::predict(); below its default,
// even pipelines are priced by their closed form.
std::optional<RunPrice> price(const MeasuredRun& run, const ClusterSpec& cluster,
                              const FrameworkProfile& profile,
                              std::int64_t max_actions = StepModel::kMaxActions);

}  // namespace copus
