#include "copus/interop/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "copus/base/check.h"

namespace copus {
namespace {

std::string print(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Rounds a time to nanoseconds. Callers round the start and the end of a span, not its duration, so
// that spans that touch still touch after rounding.
std::int64_t nanoseconds(Seconds time) { return std::llround(time.v * 1e9); }

class Printer {
 public:
  std::string finish() && {
    text_ += events_ == 0 ? "]" : "\n]";
    text_ += ",\"displayTimeUnit\":\"ms\"}\n";
    return std::move(text_);
  }

  // Prints a metadata event. Thread 0 means the whole process.
  void metadata(std::string_view what, std::int64_t process, std::int64_t thread,
                const Json& args) {
    begin('M', process);
    if (thread != 0) add(",\"tid\":{}", thread);
    add(",\"name\":\"{}\",\"args\":{}}}", what, print(args));
  }

  void span(const TraceSpan& span) {
    const std::int64_t start = nanoseconds(span.start);
    begin('X', span.process);
    add(",\"tid\":{},\"name\":{}", span.thread, print(span.name));
    if (!span.category.empty()) add(",\"cat\":{}", print(span.category));
    time("ts", start);
    time("dur", nanoseconds(span.start + span.duration) - start);
    if (!span.args.is_null()) add(",\"args\":{}", print(span.args));
    text_ += '}';
  }

  // A viewer ties each end of an arrow to the slice that is open at that time. So the arrow starts
  // 1 ns before the end of its slice, and its finish binds to the slice around it ("bp":"e").
  void flow(std::size_t id, const TraceFlow& flow, const TraceSpan& from, const TraceSpan& to) {
    const std::int64_t start = nanoseconds(from.start);
    const std::int64_t end = nanoseconds(from.start + from.duration);
    flow_end('s', id, flow, from, std::max(start, end - 1));
    flow_end('f', id, flow, to, nanoseconds(to.start));
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void begin(char phase, std::int64_t process) {
    text_ += events_++ == 0 ? "\n" : ",\n";
    add("{{\"ph\":\"{}\",\"pid\":{}", phase, process);
  }

  void time(std::string_view key, std::int64_t ns) {
    add(",\"{}\":{}{}.{:03}", key, ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
  }

  void flow_end(char phase, std::size_t id, const TraceFlow& flow, const TraceSpan& span,
                std::int64_t at) {
    begin(phase, span.process);
    add(",\"tid\":{},\"id\":{},\"name\":{},\"cat\":\"flow\"", span.thread, id, print(flow.name));
    time("ts", at);
    text_ += phase == 'f' ? ",\"bp\":\"e\"}" : "}";
  }

  std::string text_ = "{\"traceEvents\":[";
  std::size_t events_ = 0;
};

}  // namespace

std::string chrome_trace(const Trace& trace) {
  Printer out;
  std::int64_t order = 0;
  for (const TraceProcess& p : trace.processes) {
    out.metadata("process_name", p.process, 0, {{"name", p.name}});
    out.metadata("process_sort_index", p.process, 0, {{"sort_index", order++}});
  }
  for (const TraceThread& t : trace.threads) {
    out.metadata("thread_name", t.process, t.thread, {{"name", t.name}});
    out.metadata("thread_sort_index", t.process, t.thread, {{"sort_index", order++}});
  }
  for (const TraceSpan& span : trace.spans) out.span(span);
  for (std::size_t i = 0; i < trace.flows.size(); ++i) {
    const TraceFlow& flow = trace.flows[i];
    COPUS_CHECK(flow.from < trace.spans.size() && flow.to < trace.spans.size());
    out.flow(i + 1, flow, trace.spans[flow.from], trace.spans[flow.to]);
  }
  return std::move(out).finish();
}

}  // namespace copus
