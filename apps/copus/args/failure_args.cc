#include "apps/copus/args/failure_args.h"

namespace copus {

Result<RestartOptions> resolve_restarts(const FailureArgs& args, int ranks) {
  RestartOptions out;
  out.max_restarts = static_cast<int>(*args.max_restarts);
  if (!args.elastic.known()) return out;
  if (*args.elastic > ranks) {
    return field_error("--elastic", "got \"{}\"; want an integer from 1 to {}", *args.elastic,
                       ranks);
  }
  out.least_ranks = static_cast<int>(*args.elastic);
  if (out.max_restarts == 0) {
    return field_error("--elastic", "got {} without --max-restarts; want 1 or more restarts",
                       out.least_ranks);
  }
  return out;
}

BadStepOptions resolve_bad_steps(const FailureArgs& args) {
  BadStepOptions out;
  out.action = *args.on_bad_step;
  out.loss_spike = args.spike.value_or(0);
  out.norm_spike = args.norm_spike.value_or(0);
  out.most_in_a_row = *args.max_bad_steps;
  out.most_rollbacks = *args.max_rollbacks;
  return out;
}

}  // namespace copus
