#include "copus/events/event_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

namespace copus {
namespace {

// Notes the steps of evaluations; fails if it has an error to return.
class Notes final : public EventSink {
 public:
  Notes(std::vector<std::string>& all, std::string name, std::string error = "")
      : all_(all), name_(std::move(name)), error_(std::move(error)) {}

  Result<void> take(const TimedEvent& event) override {
    all_.push_back(fmt::format("{} {}", name_, std::get<EvalEvent>(event.event).step));
    times_.push_back(event.t);
    if (error_.empty()) return {};
    return make_error("{}", error_);
  }
  const std::vector<Seconds>& times() const { return times_; }

 private:
  std::vector<std::string>& all_;
  std::string name_, error_;
  std::vector<Seconds> times_;
};

EvalEvent eval(std::int64_t step) {
  EvalEvent e;
  e.step = step;
  return e;
}

using Said = std::vector<std::string>;

TEST(EventStream, SinksAreToldInTheOrderInWhichTheyCame) {
  Said said;
  Notes first(said, "first"), second(said, "second");
  EventStream stream;
  ASSERT_TRUE(stream.write(eval(1))) << "a stream without sinks must work";
  stream.subscribe(first);
  stream.subscribe(second);
  ASSERT_TRUE(stream.write(eval(2)));
  ASSERT_TRUE(stream.write(eval(3)));
  EXPECT_EQ(said, Said({"first 2", "second 2", "first 3", "second 3"}));
}

TEST(EventStream, AllSinksAreToldAndTheFirstErrorIsReturned) {
  Said said;
  Notes good(said, "good"), full(said, "full", "disk full"), gone(said, "gone", "gone"),
      last(said, "last");
  EventStream stream;
  for (Notes* each : {&good, &full, &gone, &last}) stream.subscribe(*each);
  const Result<void> written = stream.write(eval(1));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "disk full");
  EXPECT_EQ(said, Said({"good 1", "full 1", "gone 1", "last 1"}));
}

TEST(EventStream, AllSinksSeeOneTimeAndItGoesOn) {
  Said said;
  Notes first(said, "first"), second(said, "second");
  EventStream stream;
  stream.subscribe(first);
  stream.subscribe(second);
  for (int step = 1; step <= 100; ++step) ASSERT_TRUE(stream.write(eval(step)));
  EXPECT_EQ(first.times(), second.times());
  EXPECT_GE(first.times().front().v, 0);
  EXPECT_LT(first.times().front().v, 60);
  EXPECT_TRUE(std::is_sorted(first.times().begin(), first.times().end()));
}

}  // namespace
}  // namespace copus
