// Activity: what one rank is doing now, kept in a file that other processes can read even if the
// rank is stopped or dead.
//
// One thread at a time writes it; any thread or process may read it. A write is a few relaxed
// stores to a page that is mapped from a file in the run directory: it takes no lock, makes no
// system call and reads no clock. The rank's watchdog (watchdog.h) counts ticks in the same page.
// Ticks measure time, so a clock that jumps or differs between machines does no harm.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/base/units.h"

namespace copus {

enum class Doing : std::uint8_t {
  kStarting,
  kReadingData,
  kForward,        // of a micro-batch
  kBackward,       // of a micro-batch
  kCommunicating,  // waits for other ranks
  kMeeting,        // waits for other ranks, which may take long to save or load
  kOptimizer,
  kEvaluating,
  kMoving,
  kSaving,
  kLoading,
  kBetweenSteps,
};
constexpr int kDoings = 12;

constexpr bool waits_for_others(Doing doing) {
  return doing == Doing::kCommunicating || doing == Doing::kMeeting;
}

// Which operation between ranks a communicating rank is in.
enum class Operation : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kSend,
  kReceive,
  kConnect,
  kMeet,
};
constexpr int kOperations = 8;
const char* to_string(Operation operation);

// The folder with the activity file of every rank. It remains after a run that failed.
std::string activity_folder(const std::string& run_dir);

// One rank's activity at the time it was read.
struct RankActivity {
  int rank = 0;
  Doing doing = Doing::kStarting;
  std::string text;           // "in the backward pass of micro-batch 2", "reading the data"
  std::int64_t step = 0;      // the current step; 0: before the first step
  std::uint64_t changes = 0;  // how often the rank has begun or ended something
  std::uint64_t ticks = 0;    // how often its watchdog has ticked
  std::uint64_t still = 0;    // ticks since the last change
  bool over = false;          // the rank has given up or ended by itself
};

class Activity {
 public:
  static constexpr Seconds kTick{0.5};

  // Starts in this process's own memory: other processes cannot read it before publish().
  Activity();
  // Moves the page to the file FOLDER/rank-N. If another process has locked that file, returns an
  // error: two ranks with one number would overwrite each other. REQUIRES: publish() was not called
  // before, and no other thread uses this object during the call.
  Result<void> publish(const std::string& folder, int rank);
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  ~Activity();

  // Removes the file. Called when the rank ends well, since nobody needs the file then.
  void remove_file() const;

  // Stores the description of a group, such as "dp (ranks 0,1)", and returns its number for Scope.
  int add_group(const std::string& text);
  void set_step(std::int64_t step) { word(kStep).store(static_cast<std::uint64_t>(step), relaxed); }
  std::int64_t step() const { return static_cast<std::int64_t>(word(kStep).load(relaxed)); }
  // Marks that this rank ends by itself, so that its silence is not taken for the cause of a stall.
  void over(bool is = true) { word(kOver).store(is ? 1 : 0, relaxed); }
  RankActivity read() const;

  // Called by the watchdog: counts a tick, and stores that nothing changed for `still` ticks.
  void tick(std::uint64_t still);
  std::uint64_t changes() const { return word(kChanges).load(relaxed); }

  const std::string& folder() const { return folder_; }  // empty before publish()
  int rank() const { return rank_; }

  // While a Scope lives, the rank does this. Its destructor restores what the rank did before.
  class Scope {
   public:
    Scope(Activity& activity, Doing doing, std::int64_t number = 0)
        : Scope(activity, pack(doing, 0, 0, number)) {}
    Scope(Activity& activity, Operation operation, int group, std::int64_t number)
        : Scope(activity, pack(Doing::kCommunicating, static_cast<std::uint64_t>(operation),
                               static_cast<std::uint64_t>(group), number)) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { activity_.set(before_); }

   private:
    Scope(Activity& activity, std::uint64_t doing)
        : activity_(activity), before_(activity.word(kDoing).load(relaxed)) {
      activity.set(doing);
    }
    Activity& activity_;
    std::uint64_t before_;
  };

 private:
  friend std::vector<RankActivity> read_activities(const std::string& folder,
                                                   const std::vector<int>& ranks);
  static constexpr auto relaxed = std::memory_order_relaxed;
  enum Word { kMagic, kDoing, kChanges, kStep, kTicks, kStill, kOver, kGroups, kWords };
  static constexpr int kMaxGroups = 256;
  static constexpr std::size_t kGroupBytes = 120;
  using Words = std::array<std::atomic<std::uint64_t>, kWords>;
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  struct Page {
    Words words;
    std::array<std::array<char, kGroupBytes>, kMaxGroups> groups;
  };

  // One word, from the highest bits: 8 for `doing`, 8 for the operation, 16 for the group, 32 for
  // the number.
  static std::uint64_t pack(Doing doing, std::uint64_t operation, std::uint64_t group,
                            std::int64_t number) {
    return static_cast<std::uint64_t>(doing) << 56U | operation << 48U | group << 32U |
           (static_cast<std::uint64_t>(number) & 0xffffffffU);
  }
  void set(std::uint64_t doing) {
    word(kDoing).store(doing, relaxed);
    word(kChanges).store(word(kChanges).load(relaxed) + 1, relaxed);
  }
  std::atomic<std::uint64_t>& word(Word which) { return page_->words[which]; }
  const std::atomic<std::uint64_t>& word(Word which) const { return page_->words[which]; }
  static RankActivity read_page(const Page& page, int rank);

  Page* page_ = nullptr;
  int fd_ = -1;  // locked while this rank lives
  std::string folder_, path_;
  int rank_ = 0;
};

// Reads the activities of those `ranks` that have a file in the folder.
std::vector<RankActivity> read_activities(const std::string& folder, const std::vector<int>& ranks);

}  // namespace copus
