#include "copus/train/checkpoint/reader.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "copus/train/checkpoint/test_checkpoints.h"
#include "copus/train/checkpoint/weights_import.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

// Small enough to change each byte of its shard in turn.
ModelSpec one_layer() {
  ModelSpec model = tiny_model();
  model.layers = 1;
  return model;
}

std::string open_error(const std::string& folder) {
  const Result<CheckpointReader> reader = CheckpointReader::open(folder);
  return reader ? std::string() : reader.error().message;
}

TEST(CheckpointReader, GivesAnyPartWhateverLayoutWroteIt) {
  std::mt19937 random(11);
  for (const int ranks : {1, 2, 4, 6, 8}) {
    for (int i = 0; i < 6; ++i) {
      const TestFolder run;
      const ParallelPlan plan = random_plan(random, tiny_model(), ranks, kSeqLen, kGlobalBatch);
      ASSERT_EQ(save_checkpoint(run.path(), manifest_of(tiny_model(), plan, 3)), "")
          << short_name(plan);
      const Result<CheckpointReader> reader =
          CheckpointReader::open(checkpoint_folder(run.path(), 3));
      ASSERT_TRUE(reader.has_value()) << short_name(plan) << ": " << reader.error().message;
      EXPECT_EQ(wrong_state(*reader), "") << short_name(plan);
      EXPECT_TRUE(verify(checkpoint_folder(run.path(), 3)).has_value());
    }
  }
}

// For every architecture of the engine: the runs of all ranks together are every element once, and
// ranks that hold the same elements share the work.
TEST(ShardRuns, AreEveryElementOnce) {
  std::mt19937 random(5);
  for (const ModelSpec& model : small_models()) {
    for (int i = 0; i < 40; ++i) {
      const std::int64_t ranks = 1 + i % 8;
      const ParallelPlan plan = random_plan(random, model, ranks, kSeqLen, kGlobalBatch);
      std::vector<std::vector<int>> times;
      const std::vector<TensorSpec> tensors = model_tensors(model);
      times.reserve(tensors.size());
      for (const TensorSpec& tensor : tensors) {
        times.emplace_back(static_cast<std::size_t>(element_count(tensor.shape)));
      }
      for (int rank = 0; rank < ranks; ++rank) {
        for (const ShardRun& run : shard_runs(model, plan, 200, rank)) {
          const auto& shape = tensors[run.tensor].shape;
          const std::int64_t width = shape.size() > 1 ? shape[1] : 1;
          for (std::int64_t k = run.stripe.begin; k < run.stripe.end; ++k) {
            const std::int64_t element =
                k / run.stripe.columns * width + run.stripe.first_column + k % run.stripe.columns;
            ++times[run.tensor][static_cast<std::size_t>(element)];
          }
        }
      }
      for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
        for (const int n : times[tensor]) {
          ASSERT_EQ(n, 1) << model.name << " " << short_name(plan) << " " << tensors[tensor].name;
        }
      }
    }
  }
}

TEST(ShardRuns, ReplicasShareTheWork) {
  ModelSpec model = tiny_model();
  model.vocab = 1 << 16;
  model.hidden = 64;
  const ParallelPlan plan = plan_of("dp=4");
  std::vector<std::int64_t> elements;
  for (int rank = 0; rank < 4; ++rank) {
    std::int64_t sum = 0;
    for (const ShardRun& run : shard_runs(model, plan, 8 << 20, rank)) sum += run.stripe.size();
    elements.push_back(sum);
  }
  const auto [least, most] = std::minmax_element(elements.begin(), elements.end());
  EXPECT_LT(static_cast<double>(*most), 1.1 * static_cast<double>(*least));
}

TEST(PartName, IsReadBackAndNothingElseIs) {
  const ShardPart part{StateArray::kMoment2, "layers.3.mlp.up.weight", {4, 8, 16, 32}};
  EXPECT_EQ(part_name(part), "moment2/layers.3.mlp.up.weight/4.8.16.32");
  EXPECT_EQ(*parse_part_name(part_name(part), "f"), part);
  for (const char* name :
       {"", "weight", "weight/a", "weight/a/1.2.3", "weight/a/0.1.0.4.5", "weights/a/0.1.0.4",
        "weight/a/0.0.0.4", "weight/a/0.1.4.4", "weight/a/0.1.4.3", "weight/a/-1.1.0.4",
        "weight/a/0.1.0.04", "weight/a/0.1.0.9223372036854775807",
        "weight/a/9223372036854775807.9223372036854775807.0.4", "weight/a/b/0.1.0.4"}) {
    EXPECT_FALSE(parse_part_name(name, "f").has_value()) << name;
  }
}

TEST(CheckpointReader, EveryFlippedByteOfAShardIsFound) {
  const TestFolder run;
  ASSERT_EQ(save_checkpoint(run.path(), manifest_of(one_layer(), plan_of("tp=2"), 1)), "");
  const std::string folder = checkpoint_folder(run.path(), 1);
  const std::string name = "checkpoints/step-1/shard-1.safetensors";
  const std::string whole = run.read(name);
  ASSERT_TRUE(verify(folder).has_value());
  const CheckpointFile file = read_manifest(folder)->files[1];
  for (std::size_t i = 0; i < whole.size(); ++i) {
    // Changes the byte in place: writing a new file for each byte would take minutes.
    const auto put = [&](char byte) {
      std::fstream stream(run.path(name), std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(static_cast<std::streamoff>(i)).put(byte);
    };
    put(static_cast<char>(whole[i] ^ (1 << (i % 8))));
    EXPECT_FALSE(verify_file(folder, file).has_value()) << "byte " << i;
    // A changed header either fails to open or still describes every element.
    if (i < 4000) (void)open_error(folder);
    put(whole[i]);
  }
  EXPECT_TRUE(verify(folder).has_value());
}

TEST(CheckpointReader, EveryTruncationOfAShardIsAnErrorAtOnce) {
  const TestFolder run;
  ASSERT_EQ(save_checkpoint(run.path(), manifest_of(one_layer(), plan_of("dp=2,zero=1"), 1)), "");
  const std::string folder = checkpoint_folder(run.path(), 1);
  const std::string name = "checkpoints/step-1/shard-0.safetensors";
  for (auto size = fs::file_size(run.path(name)); size-- > 0;) {
    fs::resize_file(run.path(name), size);
    ASSERT_NE(open_error(folder), "") << size;
  }
  fs::remove(run.path(name));
  EXPECT_NE(open_error(folder), "");
}

// The reader of a run and `copus checkpoint verify` say the same of a file.
TEST(CheckpointReader, ACutOrMissingShardIsDamaged) {
  const TestFolder run;
  ASSERT_EQ(save_checkpoint(run.path(), manifest_of(one_layer(), ParallelPlan(), 1)), "");
  const std::string folder = checkpoint_folder(run.path(), 1);
  const CheckpointFile file = read_manifest(folder)->files[0];
  const std::string path = (fs::path(folder) / file.name).string();
  const auto verify_error = [&] {
    const Result<void> verified = verify_file(folder, file);
    return verified ? std::string() : verified.error().message;
  };
  fs::resize_file(path, static_cast<std::uintmax_t>(file.bytes) - 1);
  EXPECT_EQ(verify_error(), fmt::format("{}: is damaged: has {} bytes; want {}, as the manifest "
                                        "says",
                                        path, file.bytes - 1, file.bytes));
  EXPECT_EQ(open_error(folder), verify_error());
  fs::remove(path);
  EXPECT_EQ(verify_error(), path + ": is damaged: the file is missing");
  EXPECT_EQ(open_error(folder), verify_error());
}

// The manifest and the checksums are right, but the files are not the model's state.
TEST(CheckpointReader, EveryElementMustBeThereOnce) {
  const Manifest good = manifest_of(tiny_model(), plan_of("tp=2"), 1);
  const auto error_of = [&](const auto& change) {
    const TestFolder run;
    const std::string partial = partial_folder(run.path(), 1, 0);
    fs::create_directories(partial);
    Manifest manifest = good;
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<float> data;
      SaveJob job = job_of(good, rank, data);
      change(rank, job.parts, data);
      const Result<CheckpointFile> file = write_shard(partial, shard_name(rank), job.parts, data);
      EXPECT_TRUE(file.has_value());
      manifest.files.push_back(*file);
    }
    EXPECT_TRUE(publish(partial, run.path(), manifest).has_value());
    return open_error(checkpoint_folder(run.path(), 1));
  };
  using Parts = std::vector<ShardPart>;
  using Data = std::vector<float>;
  EXPECT_EQ(error_of([](int, Parts&, Data&) {}), "");
  EXPECT_TRUE(contains(error_of([](int rank, Parts& parts, Data& data) {
                         if (rank == 0) {
                           parts.clear();
                           data.clear();
                         }
                       }),
                       "want every element once"));
  // One array too many, one missing, one that begins later, and one of an unknown tensor.
  EXPECT_TRUE(contains(error_of([](int rank, Parts& parts, Data& data) {
                         if (rank == 0) return;
                         parts.push_back({StateArray::kWeight, "final_norm.weight", {0, 1, 0, 8}});
                         data.resize(data.size() + 8);
                       }),
                       "want every element once"));
  EXPECT_TRUE(contains(error_of([](int rank, Parts& parts, Data& data) {
                         if (rank == 0) return;
                         data.resize(data.size() -
                                     static_cast<std::size_t>(parts.back().stripe.size()));
                         parts.pop_back();
                       }),
                       "want every element once"));
  EXPECT_TRUE(contains(error_of([](int, Parts& parts, Data& data) {
                         parts.back().stripe.begin += 1;
                         data.pop_back();
                       }),
                       "want every element once"));
  EXPECT_TRUE(contains(error_of([](int rank, Parts& parts, Data& data) {
                         if (rank == 0) return;
                         parts.push_back({StateArray::kWeight, "final_norm.bias", {0, 1, 0, 8}});
                         data.resize(data.size() + 8);
                       }),
                       "are not the model's"));
}

TEST(CheckpointReader, WeightsAloneHaveMomentsOfZero) {
  const TestFolder run;
  Manifest manifest = manifest_of(tiny_model(), ParallelPlan(), 0);
  const Result<void> written = write_weights_checkpoint(
      run.path(), manifest, [&](const TensorSpec& tensor, std::span<float> out) {
        std::fill(out.begin(), out.end(), static_cast<float>(tensor.shape[0]));
        return Result<void>();
      });
  ASSERT_TRUE(written.has_value()) << written.error().message;
  const Result<CheckpointReader> reader = CheckpointReader::open(checkpoint_folder(run.path(), 0));
  ASSERT_TRUE(reader.has_value()) << reader.error().message;
  EXPECT_FALSE(reader->manifest().optimizer);
  std::vector<float> out(8);
  ASSERT_TRUE(reader->read(StateArray::kWeight, "final_norm.weight", {0, 1, 0, 8}, out));
  EXPECT_EQ(out, std::vector<float>(8, 8));
  ASSERT_TRUE(reader->read(StateArray::kMoment2, "final_norm.weight", {0, 1, 0, 8}, out));
  EXPECT_EQ(out, std::vector<float>(8, 0));
  EXPECT_FALSE(reader->read(StateArray::kWeight, "final_norm.bias", {0, 1, 0, 8}, out));
  EXPECT_FALSE(reader->read(StateArray::kWeight, "final_norm.weight", {0, 1, 4, 12}, out));
  // A failed import leaves nothing.
  manifest.step = 1;
  EXPECT_FALSE(write_weights_checkpoint(
      run.path(), manifest,
      [&](const TensorSpec&, std::span<float>) { return Result<void>(make_error("no")); }));
  EXPECT_EQ(list_checkpoints(run.path())->size(), 1U);
  EXPECT_FALSE(fs::exists(partial_folder(run.path(), 1, 0)));
}

}  // namespace
}  // namespace copus
