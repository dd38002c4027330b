#include "copus/train/launch/restarts.h"

#include <cmath>

#include "copus/base/text.h"

namespace copus {

bool Restarts::may_help(const SupervisorOutcome& outcome) {
  constexpr int kBadInput = 2;
  return outcome.exit_code != 0 && outcome.exit_code != kBadInput && !outcome.interrupted &&
         !outcome.verdict;
}

Result<Attempt> Restarts::next(const SupervisorOutcome& failed, const std::vector<int>& lost,
                               std::optional<std::int64_t> checkpoint_step) {
  COPUS_CHECK(may_help(failed));
  if (options_.max_restarts == 0) return Error{failed.message};
  if (made_ == options_.max_restarts) {
    return make_error("{}; restarted {} already, and --max-restarts allows no more", failed.message,
                      counted(made_, "time"));
  }
  // If there is no checkpoint yet, the optional is empty, which compares less than any step.
  const bool progress = checkpoint_step > checkpoint_step_;
  checkpoint_step_ = checkpoint_step;
  fruitless_ = progress || made_ == 0 ? 0 : fruitless_ + 1;
  if (fruitless_ == kFruitless) {
    return make_error("{}; {} restarts in a row have brought no new checkpoint", failed.message,
                      kFruitless);
  }
  if (options_.least_ranks > 0) {
    const int left = ranks_ - static_cast<int>(lost.size());
    if (left < options_.least_ranks) {
      return make_error("{}; {} of {} ranks are left, and --elastic wants {} at least",
                        failed.message, left, ranks_, options_.least_ranks);
    }
    ranks_ = left;
  }
  ++made_;
  return Attempt{ranks_, kFirstWait * std::exp2(fruitless_)};
}

}  // namespace copus
