#include "copus/train/run/checkpoints.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "copus/base/seconds_since.h"
#include "copus/base/test_folder.h"
#include "copus/train/comm/agree.h"
#include "copus/train/engine/test_training.h"

namespace copus {
namespace {

class Kept final : public EventSink {
 public:
  Result<void> take(const TimedEvent& event) override {
    events.push_back(std::get<CheckpointEvent>(event.event));
    return {};
  }
  std::vector<CheckpointEvent> events;
};

RunOptions saving_to(const std::string& run_dir, std::int64_t every) {
  RunOptions options;
  options.run_dir = run_dir;
  options.checkpoint.every = every;
  options.checkpoint.wait = Seconds(30);
  return options;
}

// Runs `f` on two ranks. On rank 0, its last argument is the events of the checkpoints; on the
// other rank it is null.
void with_run(const RunOptions& options,
              const std::function<void(Trainer&, Checkpoints&, const Kept*)>& f,
              std::int64_t step = 0, bool on_disk = false) {
  run_ranks(2, [&](int rank, GroupCache& groups) {
    auto trainer =
        Trainer::create(groups, options_for("llama", plan_of("dp=2,micro_batch=2,zero=1")));
    ASSERT_TRUE(trainer.has_value()) << trainer.error().message;
    Kept kept;
    EventStream events;
    events.subscribe(kept);
    const RunLog log = rank == 0 ? RunLog(events, nullptr) : RunLog();
    Checkpoints checkpoints(options, **trainer, log, step, on_disk);
    f(**trainer, checkpoints, rank == 0 ? &kept : nullptr);
  });
}

Manifest manifest_at(const Trainer& trainer, std::int64_t step) {
  return manifest_of(trainer, step, step * kBatch, Json::object());
}

TEST(Checkpoints, OneIsDueEverySoManyStepsAndWhereItWasAskedFor) {
  const TestFolder run;
  with_run(saving_to(run.path(), 4), [&](Trainer& trainer, Checkpoints& checkpoints, const Kept*) {
    EXPECT_FALSE(checkpoints.due(3));
    EXPECT_TRUE(checkpoints.due(4));
    EXPECT_TRUE(checkpoints.missing(4));
    ASSERT_TRUE(checkpoints.save(trainer, manifest_at(trainer, 4)).has_value());
    EXPECT_FALSE(checkpoints.due(4)) << "its save is under way";
    EXPECT_FALSE(checkpoints.missing(4));
    EXPECT_FALSE(checkpoints.due(5));
    EXPECT_TRUE(checkpoints.missing(5));
    checkpoints.ask();
    EXPECT_TRUE(checkpoints.due(5));
    ASSERT_TRUE(checkpoints.save(trainer, manifest_at(trainer, 5)).has_value());
    EXPECT_FALSE(checkpoints.due(5)) << "ask() was called once, before the last save";
    EXPECT_EQ(checkpoints.finish(trainer).value(), "");
  });
}

TEST(Checkpoints, AreOnDiskOnlyWhenTheyAre) {
  const TestFolder run;
  with_run(saving_to(run.path(), 0),
           [&](Trainer& trainer, Checkpoints& checkpoints, const Kept* kept) {
             EXPECT_FALSE(checkpoints.on_disk(2));
             ASSERT_TRUE(checkpoints.save(trainer, manifest_at(trainer, 2)).has_value());
             EXPECT_FALSE(checkpoints.on_disk(2)) << "poll() has not been called yet";
             EXPECT_EQ(checkpoints.finish(trainer).value(), "");
             EXPECT_TRUE(checkpoints.on_disk(2));
             EXPECT_FALSE(checkpoints.on_disk(3));
             if (kept == nullptr) return;
             ASSERT_EQ(kept->events.size(), 1U);
             EXPECT_EQ(kept->events[0].step, 2);
             EXPECT_EQ(kept->events[0].samples, 2 * kBatch);
             EXPECT_EQ(kept->events[0].path, checkpoint_folder(run.path(), 2));
             EXPECT_EQ(kept->events[0].error, "");
             EXPECT_GT(kept->events[0].bytes.v, 0);
           });
  EXPECT_EQ(list_checkpoints(run.path())->size(), 1U);
}

TEST(Checkpoints, WhatARunWentOnFromIsNotSavedAgain) {
  const TestFolder run;
  with_run(
      saving_to(run.path(), 2),
      [](Trainer&, Checkpoints& checkpoints, const Kept*) {
        EXPECT_TRUE(checkpoints.on_disk(6));
        EXPECT_FALSE(checkpoints.missing(6));
        EXPECT_FALSE(checkpoints.due(6));
        EXPECT_TRUE(checkpoints.due(8));
      },
      6, true);
}

TEST(Checkpoints, OffMeansOff) {
  const TestFolder run;
  RunOptions options = saving_to(run.path(), 2);
  options.checkpoint.save = false;
  with_run(options, [](Trainer& trainer, Checkpoints& checkpoints, const Kept*) {
    checkpoints.ask();
    EXPECT_FALSE(checkpoints.due(2));
    EXPECT_FALSE(checkpoints.missing(2));
    EXPECT_EQ(checkpoints.finish(trainer).value(), "");
  });
  EXPECT_TRUE(list_checkpoints(run.path())->empty());
}

// Rank 1 begins to write its first shard only when rank 0 already waits to start the next save.
TEST(Checkpoints, TheWaitForASlowSaveCountsForTheSaveThatWaited) {
  const TestFolder run;
  constexpr auto kLate = std::chrono::seconds(1);
  std::atomic<bool> again{false};
  with_run(
      saving_to(run.path(), 2), [&](Trainer& trainer, Checkpoints& checkpoints, const Kept* kept) {
        if (kept == nullptr) {
          const Comm& world = *trainer.mesh().world;
          TrainerSaver slow(
              {.run_dir = run.path(), .rank = 1, .ranks = 2, .wait = Seconds(30), .retention = {}});
          world.meet();
          while (!again) std::this_thread::yield();
          std::this_thread::sleep_for(kLate);
          slow.save(trainer, manifest_at(trainer, 2));
          EXPECT_EQ(slow.wait()->error, "");
          world.meet();
          slow.save(trainer, manifest_at(trainer, 4));
          EXPECT_EQ(slow.wait()->error, "");
          world.meet();
          EXPECT_EQ(first_trouble(world, trainer.options().device, ""), "");
          return;
        }
        ASSERT_TRUE(checkpoints.save(trainer, manifest_at(trainer, 2)).has_value());
        again = true;
        ASSERT_TRUE(checkpoints.save(trainer, manifest_at(trainer, 4)).has_value());
        EXPECT_EQ(checkpoints.finish(trainer).value(), "");
        ASSERT_EQ(kept->events.size(), 2U);
        const Seconds half = to_seconds(kLate) / 2;
        EXPECT_EQ(kept->events[0].step, 2);
        EXPECT_LT(kept->events[0].copy, half);
        EXPECT_EQ(kept->events[1].step, 4);
        EXPECT_GT(kept->events[1].copy, half);
      });
}

// If nothing can be written, every rank learns of it, and the event has the error.
TEST(Checkpoints, ASaveThatFailsIsSaidAndIsNotOnDisk) {
  const TestFolder run;
  const std::string file = run.path() + "/file";
  std::ofstream(file) << "in the way";
  with_run(saving_to(file + "/run", 0),
           [&](Trainer& trainer, Checkpoints& checkpoints, const Kept* kept) {
             ASSERT_TRUE(checkpoints.save(trainer, manifest_at(trainer, 2)).has_value());
             const Result<std::string> why = checkpoints.finish(trainer);
             ASSERT_TRUE(why.has_value()) << why.error().message;
             EXPECT_EQ(why->rfind("rank 0: ", 0), 0U) << *why;
             EXPECT_FALSE(checkpoints.on_disk(2));
             if (kept == nullptr) return;
             ASSERT_EQ(kept->events.size(), 1U);
             EXPECT_EQ(kept->events[0].path, "");
             EXPECT_NE(kept->events[0].error, "");
           });
}

}  // namespace
}  // namespace copus
