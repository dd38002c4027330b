#include "copus/train/record/event_file.h"

#include <gtest/gtest.h>

#include "copus/base/test_folder.h"
#include "copus/events/event_log.h"

namespace copus {
namespace {

TEST(EventFile, WhatAStreamIsToldIsReadFromTheFile) {
  const TestFolder folder;
  Result<RunDirectory> directory = RunDirectory::open(folder.path("run"), false);
  ASSERT_TRUE(directory) << directory.error().message;
  EventFile file(*directory);
  EventStream stream;
  stream.subscribe(file);
  EvalEvent eval;
  eval.step = 10;
  eval.loss = 2.5;
  EndEvent end;
  end.reason = EndReason::kFailed;
  end.error = "a folder \xff that is no UTF-8";
  ASSERT_TRUE(stream.write(eval));
  ASSERT_TRUE(stream.write(end));

  std::vector<Event> read;
  const Result<void> done =
      read_events(folder.path("run") + "/events.jsonl",
                  [&](const TimedEvent& event, const std::string&) -> Result<void> {
                    read.push_back(event.event);
                    return {};
                  });
  ASSERT_TRUE(done) << done.error().message;
  end.error = "a folder \xEF\xBF\xBD that is no UTF-8";
  EXPECT_TRUE(read == std::vector<Event>({eval, end}));
}

}  // namespace
}  // namespace copus
