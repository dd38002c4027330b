// Writes a list of time spans as Trace Event JSON, which ui.perfetto.dev and chrome://tracing read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/units.h"

namespace copus {

// The caller numbers processes and threads as it likes, from 1. Viewers use 0 themselves.
struct TraceProcess {
  std::int64_t process = 1;
  std::string name;
};

struct TraceThread {
  std::int64_t process = 1;
  std::int64_t thread = 1;
  std::string name;
};

// One slice of a thread's track. Two spans of one thread may be nested or apart, but must not
// overlap partly.
struct TraceSpan {
  std::int64_t process = 1;
  std::int64_t thread = 1;
  std::string name;
  std::string category;
  Seconds start;
  Seconds duration;
  Json args = nullptr;  // an object that the viewer shows for a selected slice; null: none
};

// A message, drawn as an arrow from the end of one span to the start of another.
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

// Times are rounded to whole nanoseconds and printed in microseconds, the unit of the format. Bytes
// that are not UTF-8 become the replacement character. REQUIRES: the spans of every flow exist.
std::string chrome_trace(const Trace& trace);

}  // namespace copus
