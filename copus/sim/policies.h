// The ways of choosing batch and layout that are compared.
#pragma once

#include <string>
#include <vector>

#include "copus/sim/sim_job.h"

namespace copus {

enum class Rule {
  kStatic,          // one batch, in its best layout
  kCbsPessimistic,  // the critical batch, in the layout that is best at the first batch
  kCbsOptimistic,   // the critical batch, in the layout that is best at the critical batch of the
                    // end
  kCopus,           // Goodput
  kOracle,          // full knowledge
};

struct Policy {
  std::string name;
  Rule rule = Rule::kCopus;
  std::int64_t batch = 0;  // kStatic
  Adapt adapt = Adapt::kFull;
  std::optional<GoodputKind> goodput = std::nullopt;  // nothing: as the run has it
  bool free_switch = false;                           // a switch takes no time

  bool baseline() const { return rule != Rule::kCopus && rule != Rule::kOracle; }
};

// The names that there are; "static:BATCH" stands for "static:64" and others like it.
std::vector<std::string> policy_names();
// Those that are compared if the user names none: simulated, and in live runs.
std::vector<std::string> default_policies();
std::vector<std::string> default_live_policies();

// By their names; "static" is one policy for each of `batches`.
Result<std::vector<Policy>> parse_policies(const std::vector<std::string>& names,
                                           const std::vector<std::int64_t>& batches);

// A run that policies are compared on. The candidates are the controller's belief, `world` the
// truth.
struct Scenario {
  std::vector<Candidate> candidates;  // by batch, then by predicted time
  std::int64_t start_batch = 0;
  ControllerOptions controller;
  World world;
};

// REQUIRES: a candidate at the start batch, and at a static policy's.
Result<SimOutcome> simulate(const Scenario& scenario, const Policy& policy,
                            const std::vector<double>& losses, std::uint64_t seed);

}  // namespace copus
