#include "copus/train/checkpoint/folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "copus/base/synced_paths.h"
#include "copus/train/checkpoint/test_checkpoints.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> steps_in(const TestFolder& run) {
  std::vector<std::int64_t> steps;
  const auto found = list_checkpoints(run.path());
  EXPECT_TRUE(found.has_value());
  for (const PublishedCheckpoint& checkpoint : *found) steps.push_back(checkpoint.step);
  return steps;
}

using Steps = std::vector<std::int64_t>;

TEST(Checkpoints, OnlyPublishedOnesAreListedByStep) {
  const TestFolder run;
  EXPECT_EQ(steps_in(run), Steps());
  for (const char* name : {"step-9", "step-10", "step-007", "step-", "step-x", ".step-11.0.partial",
                           ".step-12.old", "other"}) {
    fs::create_directories(run.path(std::string("checkpoints/") + name));
  }
  EXPECT_EQ(steps_in(run), (Steps{9, 10}));
  ASSERT_TRUE(clean_leftovers(run.path()));
  EXPECT_FALSE(fs::exists(run.path("checkpoints/.step-11.0.partial")));
  EXPECT_FALSE(fs::exists(run.path("checkpoints/.step-12.old")));
  EXPECT_TRUE(fs::exists(run.path("checkpoints/other")));
}

TEST(Checkpoints, TheFoldersThatHoldThemAreOnTheDiskFirst) {
  const TestFolder folder;
  const std::string existed = fs::canonical(folder.path()).string();
  const std::string runs = existed + "/runs", run = runs + "/one";
  synced_paths().take();
  ASSERT_TRUE(prepare_checkpoints(run));
  const std::set<std::string> synced = synced_paths().take();
  EXPECT_TRUE(synced.contains(run)) << "it names checkpoints/";
  EXPECT_TRUE(synced.contains(runs)) << "it names the run";
  EXPECT_TRUE(synced.contains(existed)) << "it names runs/";
  // Folders that someone else created may not be on disk yet.
  ASSERT_TRUE(prepare_checkpoints(run));
  EXPECT_TRUE(synced_paths().take().contains(runs)) << "it names the run";
}

TEST(Retention, KeepsTheLastAndTheMilestones) {
  const Steps steps{0, 5, 10, 15, 20, 25};
  EXPECT_EQ(to_remove(steps, {.keep = 2}, 25), (Steps{0, 5, 10, 15}));
  EXPECT_EQ(to_remove(steps, {.keep = 2, .keep_every = 10}, 25), (Steps{5, 15}));
  EXPECT_EQ(to_remove(steps, {.keep = 6}, 25), Steps());
  EXPECT_EQ(to_remove(steps, {.keep = 100}, 25), Steps());
  EXPECT_EQ(to_remove({}, {.keep = 1}, 25), Steps());
  // The last one stays whatever is asked for.
  EXPECT_EQ(to_remove({7}, {.keep = 0}, 25), Steps());
  // Newer ones that nobody vouches for do not push out the one that was just written.
  EXPECT_EQ(to_remove({20, 25, 30, 40}, {.keep = 2}, 25), Steps{20});
  EXPECT_EQ(to_remove({20, 25, 30, 40}, {.keep = 1}, 25), (Steps{20, 30}));
}

TEST(Retention, IsAppliedAfterEachSave) {
  const TestFolder run;
  for (std::int64_t step = 1; step <= 6; ++step) {
    ASSERT_EQ(save_checkpoint(run.path(), manifest_of(tiny_model(), plan_of("dp=2"), step),
                              {.keep = 2, .keep_every = 3}),
              "");
  }
  EXPECT_EQ(steps_in(run), (Steps{3, 5, 6}));
}

TEST(Checkpoints, SameStepAgainReplacesTheOld) {
  const TestFolder run;
  Manifest manifest = manifest_of(tiny_model(), plan_of("dp=2"), 4);
  ASSERT_EQ(save_checkpoint(run.path(), manifest), "");
  manifest.samples = 77;
  ASSERT_EQ(save_checkpoint(run.path(), manifest), "");
  EXPECT_EQ(read_manifest(checkpoint_folder(run.path(), 4))->samples, 77);
  EXPECT_EQ(steps_in(run), (Steps{4}));
  EXPECT_TRUE(verify(checkpoint_folder(run.path(), 4)).has_value());
}

TEST(Checkpoints, WhereNoneCanBeMadeIsSaidBefore) {
  const TestFolder run;
  run.write("checkpoints", "a file is in the way");
  const Result<void> prepared = prepare_checkpoints(run.path());
  ASSERT_FALSE(prepared.has_value());
  EXPECT_TRUE(contains(prepared.error().message, "checkpoints: cannot be"));
  EXPECT_FALSE(list_checkpoints(run.path()).has_value());
}

}  // namespace
}  // namespace copus
