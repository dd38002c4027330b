#include "copus/train/run/stopping.h"

namespace copus {

std::optional<EndReason> reached_limit(const RunOptions& options, const Reached& reached) {
  if (options.until_loss && reached.loss <= *options.until_loss) return EndReason::kLoss;
  if (options.steps && reached.steps >= *options.steps) return EndReason::kSteps;
  if (options.samples && reached.samples >= *options.samples) return EndReason::kSamples;
  return std::nullopt;
}

std::optional<EndReason> reason_to_stop(const RunOptions& options, const Reached& reached,
                                        Asked asked, bool given_up) {
  if (given_up) return EndReason::kSignal;
  if (const std::optional<EndReason> limit = reached_limit(options, reached)) return limit;
  if (asked == Asked::kNo) return std::nullopt;
  return asked == Asked::kByItsTime ? EndReason::kTime : EndReason::kSignal;
}

std::optional<Seconds> time_left(const RunOptions& options, const Reached& reached,
                                 const Pace& pace) {
  std::optional<Seconds> left;
  const auto limit = [&](Seconds time) { left = min(left.value_or(time), max(Seconds(), time)); };
  if (options.steps) limit(pace.step * real(*options.steps - reached.steps));
  if (options.samples) {
    limit(pace.step * real(*options.samples - reached.samples) / real(pace.global_batch));
  }
  if (options.for_time && !pace.out_of_time) limit(*options.for_time - pace.elapsed);
  return left;
}

}  // namespace copus
