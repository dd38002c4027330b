// Watchdog: a thread of each rank that sees when the rank stands still, says where, and ends it in
// the end.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "copus/train/health/activity.h"

namespace copus {

// Longest time at one thing: `limit` for what is known to be short, four times as long for a
// start and for checkpoints, which take as long as they take, and for who waits for those.
Seconds longest_time(Doing doing, Seconds limit);

struct WatchdogOptions {
  Seconds limit{300};  // --timeout: an operation between ranks ends by itself then
  int world_size = 1;
  Seconds tick = Activity::kTick;  // another in tests alone
  // A line for people.
  std::function<void(const std::string&)> say;
  // The rank has stood still for twice its time: what waits for it has given up. Ends the process.
  std::function<void(const std::string&)> give_up;
};

// Half of the time is over: say() names this rank, what it is at, and who keeps it waiting.
class Watchdog {
 public:
  Watchdog(Activity& activity, WatchdogOptions options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  void run();
  // False: to end now.
  bool sleep(int ticks);
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
