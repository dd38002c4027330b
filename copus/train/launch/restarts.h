// Restarts: decides whether a failed run is started again, with how many ranks, and after what
// wait. It reads no clock and starts no process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/train/launch/supervisor.h"

namespace copus {

struct RestartOptions {
  int max_restarts = 0;
  // 0: every attempt has all ranks. Otherwise an attempt goes on without the lost ranks, as long as
  // at least this many are left.
  int least_ranks = 0;
};

struct Attempt {
  int ranks = 0;
  Seconds wait;
};

class Restarts {
 public:
  // After this many restarts in a row without a new checkpoint, the run is not started again.
  static constexpr int kFruitless = 3;
  // The first wait. It doubles with each such restart: 1, 2, 4 s.
  static constexpr Seconds kFirstWait{1};

  // `checkpoint_step`: the step of the newest checkpoint, if there is one.
  Restarts(const RestartOptions& options, int ranks, std::optional<std::int64_t> checkpoint_step)
      : options_(options), ranks_(ranks), checkpoint_step_(checkpoint_step) {}

  // Returns whether another attempt may end otherwise. It would not after bad input or a verdict,
  // and the user does not want it after a signal.
  static bool may_help(const SupervisorOutcome& outcome);

  // Returns the next attempt after one that failed, or an error that says why there is none.
  // `lost`: the ranks that died or hung. `checkpoint_step`: the step of the newest checkpoint now.
  // REQUIRES: may_help(failed).
  Result<Attempt> next(const SupervisorOutcome& failed, const std::vector<int>& lost,
                       std::optional<std::int64_t> checkpoint_step);

  int made() const { return made_; }

 private:
  RestartOptions options_;
  int ranks_;
  std::optional<std::int64_t> checkpoint_step_;
  int made_ = 0, fruitless_ = 0;
};

}  // namespace copus
