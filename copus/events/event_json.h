// Events as JSON, one object a line of events.jsonl. The only place that knows their keys.
#pragma once

#include <optional>
#include <string>

#include "copus/base/json.h"
#include "copus/events/event.h"

namespace copus {

// `event` and `t` come first, then the event's fields in the order of its struct. A number that is
// not finite is null.
Json event_to_json(const TimedEvent& event);

// parse_event(event_to_json(x)) == x, but for numbers that were not finite: NaN where there always
// is one, nothing where there may be none; times are finite. Keys that this version does not know
// are left alone, as are keys that an earlier version did not write: a run of another version can
// be read. Nothing: an event of a kind that this version does not know. `where` names the file and
// line in errors.
Result<std::optional<TimedEvent>> parse_event(const Json& json, const std::string& where);

}  // namespace copus
