// Converts events to and from JSON, one object per line of events.jsonl. No other code knows their
// keys.
#pragma once

#include <optional>
#include <string>

#include "copus/base/json.h"
#include "copus/events/event.h"

namespace copus {

// Returns the event as JSON. `event` and `t` come first, then the event's fields in the order of
// its struct. A number that is not finite is null.
Json event_to_json(const TimedEvent& event);

// Returns the event of a JSON object; nullopt if this version does not know its kind.
// parse_event(event_to_json(x)) == x, except for numbers that are not finite: a field that always
// has a number becomes NaN, an optional one nullopt. Times are always finite. Runs of other
// versions can be read: unknown keys are ignored, and keys that earlier versions did not write may
// be missing. `where` names the file and line in errors.
Result<std::optional<TimedEvent>> parse_event(const Json& json, const std::string& where);

}  // namespace copus
