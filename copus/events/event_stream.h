// EventStream: passes each event of a run to all sinks that subscribed. For use by one thread.
#pragma once

#include <chrono>
#include <vector>

#include "copus/events/event.h"

namespace copus {

// Takes a run's events, for example to write them to a file or to show them on a terminal.
class EventSink {
 public:
  EventSink() = default;
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  virtual ~EventSink() = default;
  // Takes one event. An error ends the run, so that no event is lost silently.
  virtual Result<void> take(const TimedEvent& event) = 0;
};

class EventStream {
 public:
  // Adds a sink. Sinks get each event in the order in which they subscribed. They must outlive the
  // stream.
  void subscribe(EventSink& sink) { sinks_.push_back(&sink); }

  // Passes the event to every sink, also after an error of one; returns the first error.
  Result<void> write(Event event);

 private:
  std::vector<EventSink*> sinks_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace copus
