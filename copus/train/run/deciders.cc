#include "copus/train/run/deciders.h"

#include <string>

#include "copus/train/comm/agree.h"

namespace copus {
namespace {

// What rank 0 tells: where to go; "" for nowhere.
std::string command_of(const Decision& decision) {
  if (!decision.move) return "";
  return Json(
             {{"plan", plan_to_json(decision.to.plan)}, {"global_batch", decision.to.global_batch}})
      .dump();
}

Decision decision_of(const std::string& command) {
  Decision decision;
  if (command.empty()) return decision;
  const Json json = Json::parse(command);
  decision.move = true;
  decision.to.plan = plan_from_json(json.at("plan"), "rank 0's decision").value().plan;
  decision.to.global_batch = json.at("global_batch");
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
