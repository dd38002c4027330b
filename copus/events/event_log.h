// Reads a run's events.jsonl: the whole file, or the events since the last read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "copus/events/event.h"

namespace copus {

std::string events_path(const std::string& run_dir);

// Takes each event in turn; `where` is its file and line. An error that it returns ends the
// reading.
using OnEvent = std::function<Result<void>(const TimedEvent& event, const std::string& where)>;

// Follows a file that a run may still be writing.
class EventFollower {
 public:
  explicit EventFollower(std::string path) : path_(std::move(path)) {}

  // Reads the events since the last call. Leaves a last line without a newline, which is still
  // being written, for the next call. Skips events of kinds that this version does not know. A file
  // that is not there yet has no events. After an error the next call begins behind the line that
  // had the error.
  Result<void> read(const OnEvent& on_event);

 private:
  std::string path_;
  std::int64_t bytes_ = 0, lines_ = 0;  // read so far
};

// Reads all events of a file once. Fails if the file is not there.
Result<void> read_events(const std::string& path, const OnEvent& on_event);

}  // namespace copus
