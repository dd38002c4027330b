// The one stream of a run's events: who writes one writes it here, and whoever wants them
// subscribes. Used by one thread.
#pragma once

#include <chrono>
#include <vector>

#include "copus/events/event.h"

namespace copus {

// A view of a run's events: its file, a terminal's line, a table, a picture.
class EventSink {
 public:
  EventSink() = default;
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  virtual ~EventSink() = default;
  // An error ends the run: an event that a sink could not keep is not dropped.
  virtual Result<void> take(const TimedEvent& event) = 0;
};

class EventStream {
 public:
  // Sinks are told in the order in which they came. They must outlive the stream.
  void subscribe(EventSink& sink) { sinks_.push_back(&sink); }

  // Every sink is told, even where one before it failed; returns the first error.
  Result<void> write(Event event);

 private:
  std::vector<EventSink*> sinks_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace copus
