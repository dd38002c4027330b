// Prices a measured run: predicts its step time and memory with the cost model and a framework's
// profile.
#pragma once

#include <optional>

#include "copus/cost/framework.h"
#include "copus/cost/step.h"
#include "copus/validate/measured.h"

namespace copus {

struct RunPrice {
  StepEstimate estimate;
  Seconds step_time;
  Bytes peak_memory;  // of rank 0 if the framework logs that rank, else of the rank that needs most
  bool fits = false;  // every rank fits in its GPU's memory
};

// Returns the run's cluster. For several nodes, it has the network that the profile knows for the
// framework's published runs.
ClusterSpec cluster_of_run(const MeasuredRun& run, const FrameworkProfile& profile);

// Returns nothing if the run cannot be priced; run.problem says why.
std::optional<RunPrice> price(const MeasuredRun& run, const FrameworkProfile& profile);
// Prices the run on another cluster of the same shape. `max_actions` is as for
// StepModel::predict(). If it is below the default, a pipeline with an equal split is priced with
// the closed form.
std::optional<RunPrice> price(const MeasuredRun& run, const ClusterSpec& cluster,
                              const FrameworkProfile& profile,
                              std::int64_t max_actions = StepModel::kMaxActions);

}  // namespace copus
