// RunLog: what a rank says of its run. Rank 0 speaks for all; the others are silent.
#pragma once

#include <string>

#include "copus/events/event_stream.h"
#include "copus/train/record/progress.h"

namespace copus {

class RunLog {
 public:
  // Of a rank that is silent.
  RunLog() = default;
  // `progress`: where a person reads; null: nowhere. Both outlive this.
  RunLog(EventStream& events, Progress* progress) : events_(&events), progress_(progress) {}

  // An event for the run's record and all who watch.
  Result<void> write(Event event) const {
    return events_ != nullptr ? events_->write(std::move(event)) : Result<void>();
  }
  // A line for a person that no event has.
  void say(const std::string& text) const {
    if (progress_ != nullptr) progress_->say(text);
  }

 private:
  EventStream* events_ = nullptr;
  Progress* progress_ = nullptr;
};

}  // namespace copus
