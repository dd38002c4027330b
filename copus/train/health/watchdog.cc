#include "copus/train/health/watchdog.h"

#include "copus/base/seconds_since.h"
#include "copus/train/health/stall.h"

namespace copus {

Seconds longest_time(Doing doing, Seconds limit) {
  const bool patient = doing == Doing::kStarting || doing == Doing::kSaving ||
                       doing == Doing::kLoading || doing == Doing::kMeeting;
  return patient ? 4 * limit : limit;
}

Watchdog::Watchdog(Activity& activity, WatchdogOptions options)
    : activity_(activity), options_(std::move(options)), thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool Watchdog::sleep(int ticks) {
  // Counts ticks instead of reading a clock: if the process was stopped or the machine slept, that
  // time must not count.
  for (int i = 0; i < ticks; ++i) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, to_duration(options_.tick), [&] { return ending_; });
    if (ending_) return false;
    activity_.tick(++still_);
  }
  return true;
}

std::string Watchdog::suspects() {
  if (activity_.folder().empty() || options_.world_size == 1) return "";
  const std::vector<int> ranks = ranks_to_watch(options_.world_size, {});
  const auto before = read_activities(activity_.folder(), ranks);
  constexpr int kBetweenLooks = 4;  // ticks
  if (!sleep(kBetweenLooks)) return "";
  const auto after = read_activities(activity_.folder(), ranks);
  std::vector<Stall> stalls = stalled_ranks(before, after, options_.limit / 4);
  std::erase_if(stalls, [&](const Stall& stall) { return stall.rank.rank == activity_.rank(); });
  return stalls.empty() ? "" : "; " + to_text(stalls);
}

void Watchdog::run() {
  std::uint64_t seen = activity_.changes();
  bool said = false;
  while (sleep(1)) {
    if (const std::uint64_t changes = activity_.changes(); changes != seen) {
      seen = changes;
      still_ = 0;
      said = false;
      continue;
    }
    const RankActivity now = activity_.read();
    const Seconds still = static_cast<double>(still_) * options_.tick;
    const Seconds longest = longest_time(now.doing, options_.limit);
    const auto line = [&](const std::string& more) {
      const std::string place = place_of(now);
      const std::string what = waits_for_others(now.doing)
                                   ? fmt::format("waiting {:.0f} s {}", still.v, place)
                                   : fmt::format("{} for {:.0f} s", place, still.v);
      return fmt::format("rank {} has been {}{}", activity_.rank(), what, more);
    };
    if (!said && still >= longest / 2) {
      said = true;
      const std::string more = suspects();
      if (activity_.changes() == seen) options_.say(line(more));
    }
    if (still >= 2 * longest) {
      options_.give_up(line(", twice as long as --timeout allows: ended"));
      return;
    }
  }
}

}  // namespace copus
