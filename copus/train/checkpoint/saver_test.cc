#include "copus/train/checkpoint/saver.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "copus/train/checkpoint/test_checkpoints.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

SaverOptions options_for(const TestFolder& run, int rank, Seconds wait = Seconds(20)) {
  SaverOptions options;
  options.run_dir = run.path();
  options.rank = rank;
  options.ranks = 2;
  options.wait = wait;
  return options;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Saver, PublishesWhenAllHaveWrittenAndNotBefore) {
  const TestFolder run;
  const Manifest manifest = manifest_of(tiny_model(), plan_of("dp=2"), 5);
  Saver first(options_for(run, 0)), second(options_for(run, 1));
  std::vector<float> data0, data1;
  first.start(job_of(manifest, 0, data0));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(first.poll().has_value());
  EXPECT_TRUE(list_checkpoints(run.path())->empty());
  second.start(job_of(manifest, 1, data1));
  EXPECT_EQ(second.wait()->error, "");
  const std::optional<SaveOutcome> outcome = first.wait();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->error, "");
  EXPECT_EQ(outcome->step, 5);
  EXPECT_FALSE(first.busy());
  EXPECT_FALSE(first.wait().has_value());
  const std::string folder = checkpoint_folder(run.path(), 5);
  EXPECT_EQ(outcome->folder, folder);
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"manifest.json", "shard-0.safetensors",
                                                        "shard-1.safetensors"}));
  EXPECT_EQ(names_in(run.path("checkpoints")), std::vector<std::string>{"step-5"});
  std::int64_t bytes = 0;
  const Result<Manifest> published = read_manifest(folder);
  ASSERT_TRUE(published.has_value());
  for (const CheckpointFile& file : published->files) bytes += file.bytes;
  EXPECT_EQ(outcome->bytes, bytes);
}

TEST(Saver, ShardThatDoesNotComeIsAnErrorAndLeavesNothing) {
  const TestFolder run;
  const Manifest manifest = manifest_of(tiny_model(), plan_of("dp=2"), 5);
  Saver first(options_for(run, 0, /*wait=*/Seconds(0.05)));
  std::vector<float> data;
  first.start(job_of(manifest, 0, data));
  const SaveOutcome outcome = *first.wait();
  EXPECT_TRUE(contains(outcome.error, "rank 1: its shard did not come")) << outcome.error;
  EXPECT_TRUE(names_in(run.path("checkpoints")).empty());
}

TEST(Saver, FailureOfAnyRankIsKnownAtOnceByItsReason) {
  const TestFolder run;
  const Manifest manifest = manifest_of(tiny_model(), plan_of("dp=2"), 5);
  // Where its shard should be there is a folder.
  fs::create_directories(partial_folder(run.path(), 5, 0) + "/shard-1.safetensors");
  Saver first(options_for(run, 0, /*wait=*/Seconds(3600))), second(options_for(run, 1));
  std::vector<float> data0, data1;
  first.start(job_of(manifest, 0, data0));
  second.start(job_of(manifest, 1, data1));
  const SaveOutcome failed = *second.wait(), outcome = *first.wait();
  EXPECT_TRUE(contains(failed.error, "shard-1.safetensors: cannot be written")) << failed.error;
  EXPECT_EQ(outcome.error, "rank 1: " + failed.error);
  EXPECT_TRUE(list_checkpoints(run.path())->empty());
  EXPECT_TRUE(names_in(run.path("checkpoints")).empty());
  // The next save is made as if nothing had been.
  first.start(job_of(manifest, 0, data0 = {}));
  second.start(job_of(manifest, 1, data1 = {}));
  EXPECT_EQ(second.wait()->error, "");
  EXPECT_EQ(first.wait()->error, "");
  EXPECT_TRUE(verify(checkpoint_folder(run.path(), 5)).has_value());
}

TEST(Saver, RunThatEndsWaitsForNobody) {
  const TestFolder run;
  const auto begin = std::chrono::steady_clock::now();
  {
    std::vector<float> data;  // outlives the saver, which reads it
    Saver first(options_for(run, 0, /*wait=*/Seconds(3600)));
    first.start(job_of(manifest_of(tiny_model(), plan_of("dp=2"), 5), 0, data));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(5));
  EXPECT_TRUE(list_checkpoints(run.path())->empty());
}

TEST(Saver, DamagedCheckpointIsReplacedByASaveOfItsStep) {
  const TestFolder run;
  const Manifest manifest = manifest_of(tiny_model(), plan_of("dp=2"), 5);
  fs::create_directories(checkpoint_folder(run.path(), 5));
  ASSERT_FALSE(verify(checkpoint_folder(run.path(), 5)).has_value());
  EXPECT_EQ(save_checkpoint(run.path(), manifest), "");
  EXPECT_TRUE(verify(checkpoint_folder(run.path(), 5)).has_value());
}

}  // namespace
}  // namespace copus
