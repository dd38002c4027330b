#include "copus/goodput/noise_prefix.h"

#include <algorithm>

namespace copus {

std::int64_t noise_prefix(const ParallelPlan& plan, std::int64_t global_batch) {
  constexpr std::int64_t kMostSamples = 8;
  const std::int64_t micro_batches = plan.micro_batches(global_batch);
  std::int64_t samples = 1;
  const std::int64_t most = global_batch / std::max<std::int64_t>(plan.gpus(), 4);
  while (samples < kMostSamples && 2 * samples <= most) samples *= 2;
  const std::int64_t wanted =
      std::max<std::int64_t>(1, (samples + plan.micro_batch - 1) / plan.micro_batch);
  return std::min(wanted, plan.dp > 1 ? micro_batches : micro_batches - 1);
}

}  // namespace copus
