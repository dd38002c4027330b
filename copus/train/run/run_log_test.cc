#include "copus/train/run/run_log.h"

#include <gtest/gtest.h>

#include <vector>

#include "copus/base/test_folder.h"

namespace copus {
namespace {

class Listener final : public EventSink {
 public:
  Result<void> take(const TimedEvent& event) override {
    heard.push_back(std::get<EvalEvent>(event.event).step);
    if (fails) return make_error("the disk is full");
    return {};
  }
  std::vector<std::int64_t> heard;
  bool fails = false;
};

EvalEvent eval_at(std::int64_t step) { return {.step = step, .samples = 0, .loss = 2.5}; }

TEST(RunLog, OfASilentRankSaysNothingAndNeverFails) {
  const RunLog log;
  EXPECT_TRUE(log.write(eval_at(1)).has_value());
  log.say("nobody hears this");
}

TEST(RunLog, TellsAllWhoListenAndAPerson) {
  const TestFolder folder;
  std::FILE* out = std::fopen(folder.path("out").c_str(), "w");
  ASSERT_NE(out, nullptr);
  Progress progress(out);
  Listener first, second;
  EventStream events;
  events.subscribe(progress);
  events.subscribe(first);
  events.subscribe(second);
  const RunLog log(events, &progress);
  EXPECT_TRUE(log.write(eval_at(3)).has_value());
  log.say("by the way");
  std::fclose(out);
  EXPECT_EQ(first.heard, std::vector<std::int64_t>{3});
  EXPECT_EQ(second.heard, std::vector<std::int64_t>{3});
  EXPECT_EQ(folder.read("out"), "step 3  held-out loss 2.5000\nby the way\n");
}

TEST(RunLog, AnEventThatCannotBeKeptIsAnError) {
  Listener broken, other;
  broken.fails = true;
  EventStream events;
  events.subscribe(broken);
  events.subscribe(other);
  const RunLog log(events, nullptr);
  const Result<void> written = log.write(eval_at(7));
  ASSERT_FALSE(written.has_value());
  EXPECT_EQ(written.error().message, "the disk is full");
  EXPECT_EQ(other.heard, std::vector<std::int64_t>{7}) << "the other sinks still get the event";
  log.say("where nobody reads");
}

}  // namespace
}  // namespace copus
