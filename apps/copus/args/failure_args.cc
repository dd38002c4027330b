#include "apps/copus/failure_args.h"

#include "apps/copus/common.h"
#include "copus/base/text.h"

namespace copus {
namespace {

constexpr std::int64_t kManyTimes = 1'000'000;

}  // namespace

void add_failure_options(CLI::App& command, FailureArgs& a) {
  const auto text = [&](const char* flag, std::string& value, const char* help) {
    return command.add_option(flag, value, help)->check(not_empty())->group("Failures");
  };
  text("--max-restarts", a.max_restarts,
       "how often ranks that failed are started again, from the last checkpoint (default: 0)");
  text("--elastic", a.elastic,
       "go on without ranks that died or hung, down to so many (1 where none are given), at the "
       "plan "
       "that is predicted to be best for those left (default: as many as before)")
      ->expected(0, 1)
      ->default_str("1");
  text("--grace", a.grace, "from a signal to the end by force: time to save (default: 10m)");
  text(
      "--on-bad-step", a.on_bad_step,
      "at a loss or gradient that is not finite, or a spike: stop, skip (leave the samples out) or "
      "rollback (to the last checkpoint, and leave them out) (default: stop)");
  text("--spike", a.spike,
       "a loss so many robust deviations above its running median is a bad step (default: never)");
  text("--norm-spike", a.norm_spike,
       "a gradient norm so many times its running median is a bad step (default: never)");
  text("--max-bad-steps", a.max_bad_steps, "skipped in a row at most (default: 10)");
  text("--max-rollbacks", a.max_rollbacks, "in one run at most (default: 3)");
}

Result<RestartOptions> resolve_restarts(const FailureArgs& args, int ranks) {
  RestartOptions out;
  if (!args.max_restarts.empty()) {
    COPUS_TRY(const std::int64_t times,
              parse_integer(args.max_restarts, "--max-restarts", 0, kManyTimes));
    out.max_restarts = static_cast<int>(times);
  }
  if (args.elastic.empty()) return out;
  COPUS_TRY(const std::int64_t least, parse_integer(args.elastic, "--elastic", 1, ranks));
  out.least_ranks = static_cast<int>(least);
  if (out.max_restarts == 0) {
    return make_error("--elastic: got {} without --max-restarts; want 1 or more restarts", least);
  }
  return out;
}

Result<BadStepOptions> resolve_bad_steps(const FailureArgs& args) {
  BadStepOptions out;
  if (!args.on_bad_step.empty()) {
    COPUS_TRY(out.action, parse_on_bad_step(args.on_bad_step));
  }
  if (!args.spike.empty()) {
    COPUS_TRY(out.loss_spike, parse_number(args.spike, "--spike", 1, 1e6));
  }
  if (!args.norm_spike.empty()) {
    COPUS_TRY(out.norm_spike, parse_number(args.norm_spike, "--norm-spike", 1, 1e6));
  }
  if (!args.max_bad_steps.empty()) {
    COPUS_TRY(out.most_in_a_row,
              parse_integer(args.max_bad_steps, "--max-bad-steps", 0, kManyTimes));
  }
  if (!args.max_rollbacks.empty()) {
    COPUS_TRY(out.most_rollbacks,
              parse_integer(args.max_rollbacks, "--max-rollbacks", 0, kManyTimes));
  }
  return out;
}

Result<double> save_grace_s(const FailureArgs& args) {
  if (args.grace.empty()) return 600.0;
  COPUS_TRY(const double seconds, parse_duration(args.grace, "--grace"));
  if (seconds > 86400) return make_error("--grace: got {}; want a day at most", args.grace);
  return seconds;
}

std::vector<std::pair<std::string, Json>> failure_config(const FailureArgs& args,
                                                         const BadStepOptions& bad_steps) {
  std::vector<std::pair<std::string, Json>> out;
  const auto put_given = [&](const char* key, const std::string& text) {
    if (!text.empty()) out.emplace_back(key, text);
  };
  put_given("max-restarts", args.max_restarts);
  put_given("elastic", args.elastic);
  put_given("grace", args.grace);
  out.emplace_back("on-bad-step", to_string(bad_steps.action));
  put_given("spike", args.spike);
  put_given("norm-spike", args.norm_spike);
  put_given("max-bad-steps", args.max_bad_steps);
  put_given("max-rollbacks", args.max_rollbacks);
  return out;
}

}  // namespace copus
