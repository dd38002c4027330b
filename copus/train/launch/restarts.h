// Restarts: whether a run that failed is started again, with how many ranks, and after what wait.
// Pure: no clock, no process.
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
  int least_ranks = 0;  // 0: always as many as at first; else ranks that are lost are done without
};

struct Attempt {
  int ranks = 0;
  Seconds wait;
};

class Restarts {
 public:
  // So many restarts in a row that bring no new checkpoint are enough.
  static constexpr int kFruitless = 3;
  // The wait doubles with each fruitless one: 1, 2, 4 s.
  static constexpr Seconds kFirstWait{1};

  // `checkpoint_step`: of the newest one that is there, if any.
  Restarts(const RestartOptions& options, int ranks, std::optional<std::int64_t> checkpoint_step)
      : options_(options), ranks_(ranks), checkpoint_step_(checkpoint_step) {}

  // Bad input, an outcome that would be the same again, and what a user stopped stay as they are.
  static bool may_help(const SupervisorOutcome& outcome);

  // After an attempt that failed. `lost`: ranks that died or hung; `checkpoint_step` as now. An
  // error says why there is no other attempt. REQUIRES: may_help().
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
