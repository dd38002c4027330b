#include "copus/interop/chrome_trace.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace copus {
namespace {

Json parse(const Trace& trace) {
  auto json = parse_json(chrome_trace(trace), "trace");
  EXPECT_TRUE(json) << (json ? "" : json.error().message);
  return json ? *json : Json::object();
}

// Returns the only event of phase `phase`.
Json event(const Json& trace, const std::string& phase) {
  Json found;
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] != phase) continue;
    EXPECT_TRUE(found.is_null()) << "more than one event of phase " << phase;
    found = e;
  }
  EXPECT_FALSE(found.is_null()) << "no event of phase " << phase;
  return found;
}

TraceSpan span(std::int64_t thread, std::string name, Seconds start, Seconds duration) {
  TraceSpan s;
  s.thread = thread;
  s.name = std::move(name);
  s.start = start;
  s.duration = duration;
  return s;
}

TEST(ChromeTrace, IsAnEmptyListWhenThereIsNothing) {
  const Json trace = parse({});
  EXPECT_TRUE(trace["traceEvents"].is_array());
  EXPECT_TRUE(trace["traceEvents"].empty());
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
}

TEST(ChromeTrace, SpansAreInMicroseconds) {
  Trace trace;
  trace.spans.push_back(span(7, "F0", Seconds(0.0015), microseconds(12.5)));
  trace.spans[0].process = 3;
  trace.spans[0].category = "forward";
  trace.spans[0].args = {{"chunk", 2}, {"note", "warm-up"}};
  const Json e = event(parse(trace), "X");
  EXPECT_EQ(e["pid"], 3);
  EXPECT_EQ(e["tid"], 7);
  EXPECT_EQ(e["name"], "F0");
  EXPECT_EQ(e["cat"], "forward");
  EXPECT_DOUBLE_EQ(e["ts"].get<double>(), 1500);
  EXPECT_DOUBLE_EQ(e["dur"].get<double>(), 12.5);
  EXPECT_EQ(e["args"]["chunk"], 2);
  EXPECT_EQ(e["args"]["note"], "warm-up");
}

TEST(ChromeTrace, NamesTracksAndKeepsTheirOrder) {
  Trace trace;
  trace.processes = {{2, "stage B"}, {1, "stage A"}};
  trace.threads = {{2, 1, "compute"}};
  const Json events = parse(trace)["traceEvents"];
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0]["name"], "process_name");
  EXPECT_EQ(events[0]["pid"], 2);
  EXPECT_EQ(events[0]["args"]["name"], "stage B");
  EXPECT_EQ(events[4]["name"], "thread_name");
  EXPECT_EQ(events[4]["tid"], 1);
  EXPECT_EQ(events[4]["args"]["name"], "compute");
  EXPECT_LT(events[1]["args"]["sort_index"], events[3]["args"]["sort_index"]);
}

TEST(ChromeTrace, EscapesWhateverTextItIsGiven) {
  const std::string nasty = "\"quoted\" \\ \n\t\x01 </script> é";
  Trace trace;
  trace.processes = {{1, nasty}};
  trace.spans.push_back(span(1, nasty, Seconds(0), Seconds(1)));
  trace.spans[0].args = {{nasty, nasty}};
  const Json parsed = parse(trace);
  EXPECT_EQ(parsed["traceEvents"][0]["args"]["name"], nasty);
  EXPECT_EQ(event(parsed, "X")["name"], nasty);
  EXPECT_EQ(event(parsed, "X")["args"][nasty], nasty);
}

TEST(ChromeTrace, ReplacesTextThatIsNotUtf8) {
  Trace trace;
  trace.spans.push_back(span(1, "bad \xff byte", Seconds(0), Seconds(1)));
  EXPECT_EQ(event(parse(trace), "X")["name"], "bad \xEF\xBF\xBD byte");
}

TEST(ChromeTrace, FlowsStartAndFinishInsideTheirSpans) {
  Trace trace;
  trace.spans.push_back(span(1, "F0", microseconds(10), microseconds(5)));
  trace.spans.push_back(span(2, "F0", microseconds(20), microseconds(5)));
  trace.flows.push_back({0, 1, "activation"});
  const Json parsed = parse(trace);
  const Json start = event(parsed, "s");
  const Json finish = event(parsed, "f");
  EXPECT_EQ(start["tid"], 1);
  EXPECT_EQ(finish["tid"], 2);
  EXPECT_EQ(start["id"], finish["id"]);
  EXPECT_EQ(start["name"], finish["name"]);
  EXPECT_EQ(start["cat"], finish["cat"]);
  EXPECT_DOUBLE_EQ(start["ts"].get<double>(), 14.999);
  EXPECT_DOUBLE_EQ(finish["ts"].get<double>(), 20);
  EXPECT_EQ(finish["bp"], "e");
}

TEST(ChromeTrace, SpansThatTouchStillTouchAfterRounding) {
  Trace trace;
  const Seconds step(1e-9 / 3);
  for (int i = 0; i < 100; ++i) trace.spans.push_back(span(1, "x", i * 100.0 * step, 100.0 * step));
  const Json parsed = parse(trace);
  double end = 0;
  for (const Json& e : parsed["traceEvents"]) {
    EXPECT_NEAR(e["ts"].get<double>(), end, 1e-9);
    end = e["ts"].get<double>() + e["dur"].get<double>();
  }
}

}  // namespace
}  // namespace copus
