#include "copus/train/run/deciders.h"

#include <string>

#include "copus/train/comm/agree.h"

namespace copus {
namespace {

// Returns what rank 0 tells the other ranks: the configuration to move to, or "" for no move.
std::string command_of(const Decision& decision) {
  return decision.move ? to_text(decision.to) : "";
}

Decision decision_of(const std::string& command) {
  Decision decision;
  if (command.empty()) return decision;
  decision.move = true;
  const Result<Configuration> to = parse_configuration(command);
  if (!to) throw CommError("rank 0's decision: " + to.error().message);
  decision.to = *to;
  return decision;
}

}  // namespace

Decision LeadingDecider::consider(std::optional<Seconds> remaining) {
  const Decision decision = controller_.consider(remaining);
  from_rank_0(world_, device_, command_of(decision));
  return decision;
}

Decision FollowingDecider::consider(std::optional<Seconds> /*remaining*/) {
  return decision_of(from_rank_0(world_, device_, ""));
}

}  // namespace copus
