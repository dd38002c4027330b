#include "copus/events/event_log.h"

#include <gtest/gtest.h>

#include <fstream>

#include "copus/base/test_folder.h"

namespace copus {
namespace {

class EventLog : public testing::Test {
 protected:
  void append(const std::string& text) const {
    std::ofstream(path_, std::ios::app | std::ios::binary) << text;
  }
  static std::string eval_line(int step) {
    return fmt::format("{{\"event\":\"eval\",\"t\":1,\"step\":{},\"samples\":8,\"loss\":2}}\n",
                       step);
  }
  // Collects each event as "LINE=STEP".
  OnEvent into(std::vector<std::string>& seen) const {
    return [&seen, this](const TimedEvent& event, const std::string& where) -> Result<void> {
      EXPECT_TRUE(where.starts_with(path_ + ":")) << where;
      seen.push_back(fmt::format("{}={}", where.substr(path_.size() + 1),
                                 std::get<EvalEvent>(event.event).step));
      return {};
    };
  }

  TestFolder folder_;
  std::string path_ = folder_.path("events.jsonl");
};

using Lines = std::vector<std::string>;

TEST_F(EventLog, ALastLineWithoutAnEndIsLeftOut) {
  append(eval_line(1) + eval_line(2) + "{\"event\":\"ev");
  Lines seen;
  ASSERT_TRUE(read_events(path_, into(seen)));
  EXPECT_EQ(seen, Lines({"1=1", "2=2"}));
}

TEST_F(EventLog, AFollowerGetsEachEventOnce) {
  EventFollower follower(path_);
  Lines seen;
  ASSERT_TRUE(follower.read(into(seen))) << "a file that is not there yet has no events";
  EXPECT_EQ(seen, Lines());
  append(eval_line(1) + eval_line(2).substr(0, 10));
  ASSERT_TRUE(follower.read(into(seen)));
  EXPECT_EQ(seen, Lines({"1=1"}));
  append(eval_line(2).substr(10) + eval_line(3));
  ASSERT_TRUE(follower.read(into(seen)));
  ASSERT_TRUE(follower.read(into(seen)));
  EXPECT_EQ(seen, Lines({"1=1", "2=2", "3=3"}));
}

TEST_F(EventLog, EventsOfAnotherVersionArePassedOver) {
  append("{\"event\":\"of_later\",\"t\":1}\n" + eval_line(2));
  Lines seen;
  ASSERT_TRUE(read_events(path_, into(seen)));
  EXPECT_EQ(seen, Lines({"2=2"}));
}

TEST_F(EventLog, ErrorsNameTheFileAndTheLine) {
  Lines seen;
  EXPECT_EQ(read_events(path_, into(seen)).error().message,
            path_ + ": cannot be read; want a run's events.jsonl");
  append(eval_line(1) + "{\"event\":\"eval\",\"t\":1}\n" + eval_line(3));
  EXPECT_EQ(read_events(path_, into(seen)).error().message,
            path_ + ":2: step: missing; want an integer from 0 to 1152921504606846976");
  EXPECT_EQ(seen, Lines({"1=1"}));
  EXPECT_TRUE(read_events(folder_.write("broken", "{]\n"), into(seen))
                  .error()
                  .message.starts_with(folder_.path("broken") + ":1: "));
}

TEST_F(EventLog, WhoReadsMayStop) {
  append(eval_line(1) + eval_line(2));
  int events = 0;
  const Result<void> read =
      read_events(path_, [&](const TimedEvent&, const std::string& where) -> Result<void> {
        ++events;
        return make_error("{}: enough", where);
      });
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, path_ + ":1: enough");
  EXPECT_EQ(events, 1);
}

}  // namespace
}  // namespace copus
