// Trace Event JSON, as ui.perfetto.dev and chrome://tracing read it, from a neutral list of spans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/units.h"

namespace copus {

// Processes and threads are numbers of the caller's choice, from 1: viewers keep 0 for themselves.
struct TraceProcess {
  std::int64_t process = 1;
  std::string name;
};

struct TraceThread {
  std::int64_t process = 1;
  std::int64_t thread = 1;
  std::string name;
};

// One slice of a thread's track. Spans of one thread may nest or follow each other, not overlap.
struct TraceSpan {
  std::int64_t process = 1;
  std::int64_t thread = 1;
  std::string name;
  std::string category;
  Seconds start;
  Seconds duration;
  Json args = nullptr;  // an object, shown when the slice is selected; null: none
};

// An arrow from the end of one span to the start of another: a message.
struct TraceFlow {
  std::size_t from = 0;  // index into Trace::spans
  std::size_t to = 0;
  std::string name;
};

struct Trace {
  std::vector<TraceProcess> processes;  // shown in this order
  std::vector<TraceThread> threads;     // shown in this order
  std::vector<TraceSpan> spans;
  std::vector<TraceFlow> flows;
};

// Times are rounded to whole nanoseconds and printed in microseconds, as the format wants them.
// Text that is not UTF-8 is kept readable: bad bytes become the replacement character. REQUIRES:
// every flow's spans exist.
std::string chrome_trace(const Trace& trace);

}  // namespace copus
