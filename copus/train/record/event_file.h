// EventFile: writes a run's events as the lines of its events.jsonl.
#pragma once

#include "copus/events/event_json.h"
#include "copus/events/event_stream.h"
#include "copus/train/record/run_directory.h"

namespace copus {

class EventFile final : public EventSink {
 public:
  // REQUIRES: `directory` outlives this object.
  explicit EventFile(RunDirectory& directory) : directory_(directory) {}

  Result<void> take(const TimedEvent& event) override {
    return directory_.append_event(event_to_json(event));
  }

 private:
  RunDirectory& directory_;
};

}  // namespace copus
