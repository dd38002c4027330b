// Watchdog: a thread of each rank that notices when the rank stands still. It first says what the
// rank is doing, and later ends the rank.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "copus/train/health/activity.h"

namespace copus {

// Returns how long a rank may do the same thing: four times `limit` for starting, for saving and
// loading checkpoints, and for waiting for ranks that do so; `limit` for everything else.
Seconds longest_time(Doing doing, Seconds limit);

struct WatchdogOptions {
  Seconds limit{300};  // --timeout: after it, an operation between ranks fails by itself
  int world_size = 1;
  Seconds tick = Activity::kTick;  // only tests change it
  // Called with a line for the user when half of longest_time() is over. The line names this rank,
  // what it is doing, and which other ranks are stalled.
  std::function<void(const std::string&)> say;
  // Called with a line for the user after twice longest_time(), when the ranks that wait for this
  // one have given up. It ends the process.
  std::function<void(const std::string&)> give_up;
};

class Watchdog {
 public:
  Watchdog(Activity& activity, WatchdogOptions options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  void run();
  // Sleeps for so many ticks. Returns false if the watchdog is to end now.
  bool sleep(int ticks);
  // Returns "; " and the other ranks that are stalled, or "".
  std::string suspects();

  Activity& activity_;
  const WatchdogOptions options_;
  std::uint64_t still_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace copus
