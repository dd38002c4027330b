// Writes checkpoints behind a run that goes on: each rank its shard, by a thread of its own. Rank 0
// waits for the others' shards and publishes. The ranks meet in the file system alone, so no
// message between them can be held up or overtaken by a save.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "copus/train/checkpoint/folder.h"
#include "copus/train/checkpoint/shard.h"

namespace copus {

struct SaverOptions {
  std::string run_dir;  // the same folder for all ranks
  int rank = 0;
  int ranks = 1;
  Seconds wait{1200};   // rank 0, from the beginning: for the slowest of the others
  Retention retention;  // rank 0's
};

struct SaveJob {
  std::vector<ShardPart> parts;
  std::span<const float> data;     // the parts, one after the other; stays until the save is over
  std::shared_future<void> ready;  // the data is all there; none: it is now
  Manifest manifest;  // its files are found out by rank 0; the others need the step alone
};

struct SaveOutcome {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::string folder;
  std::string error;       // not empty: nothing was published, and what was written is removed
  std::string warning;     // published, but old ones could not be removed
  std::int64_t bytes = 0;  // of all files; other ranks: of their own
  Seconds write;
  std::string partial;  // where it was written until it was published
};

class Saver {
 public:
  explicit Saver(SaverOptions options) : options_(std::move(options)) {}
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  // Gives up waiting for others; its own writing is finished first.
  ~Saver();

  // All ranks begin the same saves in the same order. REQUIRES: none is under way.
  void start(SaveJob job);
  bool busy() const { return running_.valid(); }
  // The one under way where it is over, once.
  std::optional<SaveOutcome> poll();
  // Until it is over; nothing where there is none.
  std::optional<SaveOutcome> wait();

 private:
  std::optional<SaveOutcome> take();
  SaveOutcome run(const SaveJob& job, const std::string& partial) const;
  Result<std::int64_t> write(const SaveJob& job, const std::string& partial,
                             std::chrono::steady_clock::time_point begin,
                             SaveOutcome& outcome) const;
  Result<std::vector<CheckpointFile>> gather(const std::string& partial,
                                             std::chrono::steady_clock::time_point begin) const;

  SaverOptions options_;
  std::int64_t attempts_ = 0;
  std::string failed_;  // partial folder of the last save, where it failed
  std::atomic<bool> give_up_{false};
  std::future<SaveOutcome> running_;
};

}  // namespace copus
