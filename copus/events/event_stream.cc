#include "copus/events/event_stream.h"

#include <utility>

#include "copus/base/seconds_since.h"

namespace copus {

Result<void> EventStream::write(Event event) {
  const TimedEvent timed{seconds_since(begin_), std::move(event)};
  Result<void> first;
  for (EventSink* sink : sinks_) {
    Result<void> taken = sink->take(timed);
    if (!taken && first) first = std::move(taken);
  }
  return first;
}

}  // namespace copus
