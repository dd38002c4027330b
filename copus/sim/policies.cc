#include "copus/sim/policies.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "copus/base/text.h"
#include "copus/sim/oracle.h"

namespace copus {
namespace {

// Returns the candidate at a batch that is predicted to be fastest. Baselines know the predicted
// step times only, as Copus does when it begins.
const Candidate* best_at(const Scenario& scenario, std::int64_t batch,
                         const std::function<bool(const Candidate&)>& allowed = nullptr) {
  const auto found = std::find_if(
      scenario.candidates.begin(), scenario.candidates.end(),
      [&](const Candidate& c) { return c.at.global_batch == batch && (!allowed || allowed(c)); });
  return found == scenario.candidates.end() ? nullptr : &*found;
}

// Returns the start with the layout that is best at the critical batch of the last loss, among the
// layouts that can run the first batch.
const Candidate* optimistic_start(const Scenario& scenario, double last_loss) {
  const double critical = scenario.world.curve.critical_batch(last_loss);
  const auto at_start = [&](const Candidate& late) -> const Candidate* {
    return best_at(scenario, scenario.start_batch,
                   [&](const Candidate& c) { return same_placement(c.at.plan, late.at.plan); });
  };
  std::int64_t batch = scenario.start_batch;
  for (const Candidate& candidate : scenario.candidates) {
    const std::int64_t b = candidate.at.global_batch;
    if (static_cast<double>(b) <= critical) batch = std::max(batch, b);
  }
  const Candidate* late =
      best_at(scenario, batch, [&](const Candidate& c) { return at_start(c) != nullptr; });
  return late == nullptr ? nullptr : at_start(*late);
}

struct KnownPolicy {
  Policy policy;
  bool simulated, live;  // whether it is compared if the user names none
};

const std::vector<KnownPolicy>& known_policies() {
  static const std::vector<KnownPolicy> all = {
      {{"static", Rule::kStatic, 0, Adapt::kOff}, true, true},
      {{"static:BATCH", Rule::kStatic, 0, Adapt::kOff}, false, false},
      {{"cbs-pessimistic", Rule::kCbsPessimistic, 0, Adapt::kTrack}, true, true},
      {{"cbs-optimistic", Rule::kCbsOptimistic, 0, Adapt::kTrack}, true, true},
      {{"copus", Rule::kCopus}, true, true},
      {{"copus-2026", Rule::kCopus, 0, Adapt::kFull, std::nullopt, false, Rules::kCopus2026},
       true,
       true},
      {{"copus-plain", Rule::kCopus, 0, Adapt::kFull, GoodputKind::kPlain}, true, false},
      {{"copus-lr-aware", Rule::kCopus, 0, Adapt::kFull, GoodputKind::kLrAware}, true, false},
      {{"copus-batch", Rule::kCopus, 0, Adapt::kBatch}, false, false},
      {{"copus-free-switch", Rule::kCopus, 0, Adapt::kFull, std::nullopt, true}, true, false},
      {{"oracle", Rule::kOracle}, true, false},
  };
  return all;
}

std::vector<std::string> names_of(bool (*is_wanted)(const KnownPolicy&)) {
  std::vector<std::string> names;
  for (const KnownPolicy& each : known_policies()) {
    if (is_wanted(each)) names.push_back(each.policy.name);
  }
  return names;
}

Result<std::vector<Policy>> parse_policy(const std::string& name,
                                         const std::vector<std::int64_t>& batches) {
  const std::vector<std::string_view> parts = split(name, ':');
  if (parts.front() == "static") {
    std::vector<Policy> all;
    if (parts.size() == 1) {
      for (const std::int64_t batch : batches) {
        all.push_back({fmt::format("static:{}", batch), Rule::kStatic, batch, Adapt::kOff});
      }
      return all;
    }
    COPUS_TRY(const std::int64_t batch,
              parse_integer(name.substr(7), "--policies: static", 1, 1 << 30));
    if (std::find(batches.begin(), batches.end(), batch) == batches.end()) {
      return field_error("--policies", "got {}; want a batch of the ladder: {}", name,
                         fmt::join(batches, ", "));
    }
    return std::vector<Policy>{{name, Rule::kStatic, batch, Adapt::kOff}};
  }
  for (const KnownPolicy& known : known_policies()) {
    if (known.policy.name == name) return std::vector<Policy>{known.policy};
  }
  return field_error("--policies", "got {}; want {}", shortened(name, 40), join_or(policy_names()));
}

}  // namespace

std::vector<std::string> policy_names() {
  return names_of([](const KnownPolicy&) { return true; });
}
std::vector<std::string> default_policies() {
  return names_of([](const KnownPolicy& policy) { return policy.simulated; });
}
std::vector<std::string> default_live_policies() {
  return names_of([](const KnownPolicy& policy) { return policy.live; });
}

Result<std::vector<Policy>> parse_policies(const std::vector<std::string>& names,
                                           const std::vector<std::int64_t>& batches) {
  std::vector<Policy> all;
  for (const std::string& name : names) {
    COPUS_TRY(const std::vector<Policy> policies, parse_policy(name, batches));
    for (const Policy& policy : policies) {
      const bool known = std::any_of(all.begin(), all.end(),
                                     [&](const Policy& p) { return p.name == policy.name; });
      if (!known) all.push_back(policy);
    }
  }
  return all;
}

Result<SimOutcome> simulate(const Scenario& scenario, const Policy& policy,
                            const std::vector<double>& losses, std::uint64_t seed) {
  if (policy.rule == Rule::kOracle) {
    return fastest_way(scenario.world, scenario.candidates, losses);
  }
  World world = scenario.world;
  ControllerOptions controller = scenario.controller;
  controller.policy.adapt = policy.adapt;
  if (policy.goodput) {
    controller.policy.kind = *policy.goodput;
    if (controller.calibration) controller.calibration->kind = policy.goodput;
  }
  std::vector<Candidate> believed = scenario.candidates;
  if (policy.rules == Rules::kCopus2026) {
    controller.policy = published(controller.policy);
    controller.probe = 0;
    // The paper measures every candidate before the run, so this policy is told the true times.
    for (Candidate& candidate : believed) {
      StepBreakdown measured;
      measured.compute = scenario.world.step_time(candidate);
      candidate.predicted = measured;
    }
    controller.judge_moves = false;
    controller.calibration.reset();
  }
  if (policy.adapt == Adapt::kOff)
    controller.decide_every = std::numeric_limits<std::int64_t>::max();
  auto pause = scenario.world.pause;
  if (policy.free_switch) {
    world.pause = pause = [](const Configuration&, const Configuration&) { return Seconds(); };
    world.in_place_pause = controller.in_place_pause = Seconds();
  }
  const Candidate* start = nullptr;
  switch (policy.rule) {
    case Rule::kStatic:
      start = best_at(scenario, policy.batch);
      break;
    case Rule::kCbsOptimistic:
      start = optimistic_start(scenario, losses.back());
      break;
    default:
      start = best_at(scenario, scenario.start_batch);
      break;
  }
  if (policy.rules == Rules::kCopus2026 && start != nullptr) {
    for (const Candidate& candidate : scenario.candidates) {
      if (candidate.at.global_batch == scenario.start_batch &&
          scenario.world.step_time(candidate) < scenario.world.step_time(*start)) {
        start = &candidate;
      }
    }
  }
  if (start == nullptr) {
    return field_error(policy.name,
                       "got no layout that fits; want another --fix, --batch-range or --cluster");
  }
  const auto find = [&](const Configuration& at) -> const Candidate& {
    const auto found = std::find_if(scenario.candidates.begin(), scenario.candidates.end(),
                                    [&](const Candidate& candidate) { return candidate.at == at; });
    COPUS_CHECK(found != scenario.candidates.end());
    return *found;
  };
  SimJob job(world, {.losses = losses, .seed = seed}, *start, find);
  const auto index = static_cast<std::size_t>(start - scenario.candidates.data());
  Controller brain(controller, believed.at(index), believed, pause);
  COPUS_TRY_VOID(drive(job, brain));
  return job.outcome();
}

}  // namespace copus
