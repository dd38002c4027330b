#include "copus/train/checkpoint/folder.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "copus/train/checkpoint/test_checkpoints.h"

namespace {

// What this program syncs, by path.
std::set<std::string>& synced() {
  static std::set<std::string> paths;
  return paths;
}

}  // namespace

extern "C" int fsync(int fd) {
  std::error_code unknown;
  synced().insert(
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), unknown).string());
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

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
  const std::string run = fs::canonical(folder.path()).string() + "/run";
  synced().clear();
  ASSERT_TRUE(prepare_checkpoints(run));
  EXPECT_TRUE(synced().contains(run)) << "it names checkpoints/";
  EXPECT_TRUE(synced().contains(fs::path(run).parent_path().string())) << "it names the run";
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
