// RunLog: writes a run's events and prints its lines. Only rank 0 has output; the log of every
// other rank is silent.
#pragma once

#include <string>

#include "copus/events/event_stream.h"
#include "copus/train/record/progress.h"

namespace copus {

class RunLog {
 public:
  // A silent log.
  RunLog() = default;
  // `progress`: prints lines for a person; null: prints none. REQUIRES: both outlive this.
  RunLog(EventStream& events, Progress* progress) : events_(&events), progress_(progress) {}

  // Writes an event to all sinks of the stream.
  Result<void> write(Event event) const {
    return events_ != nullptr ? events_->write(std::move(event)) : Result<void>();
  }
  // Prints a line for a person that no event contains.
  void say(const std::string& text) const {
    if (progress_ != nullptr) progress_->say(text);
  }

 private:
  EventStream* events_ = nullptr;
  Progress* progress_ = nullptr;
};

}  // namespace copus
