// Activity: what one rank is doing now, where others can read it though the rank is stopped or
// dead.
//
// Written by one thread at a time, read by any thread or process. Writing is a few relaxed stores
// to a page that a file of the run directory maps: no lock, no system call, no clock. Time is told
// by the rank's watchdog (watchdog.h), which counts its ticks in the same page: a clock that jumps,
// or differs between machines, says nothing wrong.
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
  kMeeting,        // waits for other ranks that may be long at their disks
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

// What else an operation between ranks says of itself.
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

// Where each rank of a run says what it does, while the run lives and after it failed.
std::string activity_folder(const std::string& run_dir);

// One rank's activity as somebody read it.
struct RankActivity {
  int rank = 0;
  Doing doing = Doing::kStarting;
  std::string text;           // "in the backward pass of micro-batch 2", "reading the data"
  std::int64_t step = 0;      // that it is in; 0: none yet
  std::uint64_t changes = 0;  // of what it does, so far
  std::uint64_t ticks = 0;    // of its watchdog, so far
  std::uint64_t still = 0;    // ticks since the last change
  bool over = false;          // it has given up or ended by itself
};

class Activity {
 public:
  static constexpr Seconds kTick{0.5};

  // In memory of this process alone at first: nobody else sees it.
  Activity();
  // From now on in FOLDER/rank-N, which a reader finds by the rank's number. A file that another
  // process holds is an error: two ranks of one number would overwrite each other. REQUIRES: not
  // published before, and no other thread uses this now.
  Result<void> publish(const std::string& folder, int rank);
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  ~Activity();

  // After a good end there is nothing to look up: takes the file away.
  void remove_file() const;

  // "dp (ranks 0,1)": a number for Scope.
  int add_group(const std::string& text);
  void set_step(std::int64_t step) { word(kStep).store(static_cast<std::uint64_t>(step), relaxed); }
  std::int64_t step() const { return static_cast<std::int64_t>(word(kStep).load(relaxed)); }
  // This rank ends by itself: that it falls silent explains nothing.
  void over(bool is = true) { word(kOver).store(is ? 1 : 0, relaxed); }
  RankActivity read() const;

  // The watchdog's: one more tick, in which nothing changed for `still` ticks.
  void tick(std::uint64_t still);
  std::uint64_t changes() const { return word(kChanges).load(relaxed); }

  const std::string& folder() const { return folder_; }  // empty: in memory alone
  int rank() const { return rank_; }

  // From its beginning to its end the rank does this; then what it did before.
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

  // doing 8 bits, operation 8, group 16, number 32.
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

// Those of `ranks` that have a file in the folder.
std::vector<RankActivity> read_activities(const std::string& folder, const std::vector<int>& ranks);

}  // namespace copus
