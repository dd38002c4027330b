// Policies: the rules for batch and layout that `copus compare` compares.
#pragma once

#include <string>
#include <vector>

#include "copus/sim/sim_job.h"

namespace copus {

enum class Rule {
  kStatic,          // one batch, in its best layout
  kCbsPessimistic,  // the critical batch, in the layout that is best at the first batch
  kCbsOptimistic,   // the critical batch, in the layout that is best at the critical batch of the
                    // last loss
  kCopus,           // batch and layout by Goodput
  kOracle,          // the fastest way, found with full knowledge
};

struct Policy {
  std::string name;
  Rule rule = Rule::kCopus;
  std::int64_t batch = 0;  // of kStatic
  Adapt adapt = Adapt::kFull;
  std::optional<GoodputKind> goodput = std::nullopt;  // nullopt: the kind of the scenario
  bool free_switch = false;                           // a switch takes no time
  Rules rules = Rules::kCopus;

  bool baseline() const { return rule != Rule::kCopus && rule != Rule::kOracle; }
};

// Returns all policy names. "static:BATCH" stands for "static:64" and the like.
std::vector<std::string> policy_names();
// Return the policies that are compared if the user names none, in simulation and in live runs.
std::vector<std::string> default_policies();
std::vector<std::string> default_live_policies();

// Returns the policies with these names. "static" stands for one policy per batch of `batches`.
Result<std::vector<Policy>> parse_policies(const std::vector<std::string>& names,
                                           const std::vector<std::int64_t>& batches);

// The job on which policies are compared. `candidates` is what the controller believes, `world` is
// the truth.
struct Scenario {
  std::vector<Candidate> candidates;  // by batch, then by predicted time
  std::int64_t start_batch = 0;
  ControllerOptions controller;
  World world;
};

// Simulates a run of one policy. Fails if no candidate has the batch at which the policy begins.
// REQUIRES: scenario.candidates is not empty.
Result<SimOutcome> simulate(const Scenario& scenario, const Policy& policy,
                            const std::vector<double>& losses, std::uint64_t seed);

}  // namespace copus
