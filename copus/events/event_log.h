// A run's events.jsonl: where it is, and reading all of it, or what came since it was read last.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "copus/events/event.h"

namespace copus {

std::string events_path(const std::string& run_dir);

// Told of each event in turn; `where` is its file and line. What it returns ends the reading.
using OnEvent = std::function<Result<void>(const TimedEvent& event, const std::string& where)>;

// Follows a file that a run may still be writing.
class EventFollower {
 public:
  explicit EventFollower(std::string path) : path_(std::move(path)) {}

  // The events since the last call. A last line without an end is one that is being written, and
  // left for the next call; events of kinds that this version does not know are passed over. A file
  // that is not there yet has none. After an error the next call begins behind the line that had
  // it.
  Result<void> read(const OnEvent& on_event);

 private:
  std::string path_;
  std::int64_t bytes_ = 0, lines_ = 0;  // read so far
};

// The same, once; a file that is not there is an error.
Result<void> read_events(const std::string& path, const OnEvent& on_event);

}  // namespace copus
