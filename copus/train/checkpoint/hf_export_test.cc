#include "copus/train/checkpoint/hf_export.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "copus/base/test_folder.h"
#include "copus/interop/half_floats.h"
#include "copus/spec/hf_config.h"
#include "copus/train/checkpoint/hf_test_models.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

TEST(HfExport, ComesBackBitForBitFromOneFileAndFromMany) {
  for (const ModelSpec& model : hf_test_models()) {
    for (const std::int64_t most : {std::int64_t{1} << 30, std::int64_t{2000}}) {
      SCOPED_TRACE(model.family + " " + std::to_string(most));
      const TestFolder folder;
      make_checkpoint(folder.path("run"), model);
      const CheckpointReader before = reader_of(folder.path("run"));
      const auto exported =
          export_to_hf(before, folder.path("hf"), {.dtype = "F32", .max_shard_bytes = most});
      ASSERT_TRUE(exported) << exported.error().message;
      EXPECT_EQ(exported->bytes, 4 * model.total_params());
      EXPECT_EQ(exported->files.size() > 2, most == 2000);
      const auto imported = import_from_hf(folder.path("hf"), folder.path("again"));
      ASSERT_TRUE(imported) << imported.error().message;
      const CheckpointReader after = reader_of(folder.path("again"));
      EXPECT_TRUE(after.manifest().model == model);
      EXPECT_FALSE(after.manifest().optimizer);
      for (const TensorSpec& tensor : model_tensors(model)) {
        EXPECT_EQ(weights(before, tensor), weights(after, tensor)) << tensor.name;
      }
    }
  }
}

TEST(HfExport, ConfigHasThePositionsThatWereTrained) {
  const ModelSpec model = hf_test_model(hf_test_config("llama"));
  const auto exported_positions = [&](std::int64_t seq_len) {
    const TestFolder folder;
    make_checkpoint(folder.path("run"), model, seq_len);
    EXPECT_TRUE(export_to_hf(reader_of(folder.path("run")), folder.path("hf"), {}));
    return load_model(folder.path("hf/config.json")).value().max_positions;
  };
  EXPECT_EQ(exported_positions(16), 64);
  EXPECT_EQ(exported_positions(256), 256);
}

TEST(HfExport, Bf16IsTheNearest) {
  const ModelSpec model = hf_test_models()[0];
  const TestFolder folder;
  make_checkpoint(folder.path("run"), model);
  const CheckpointReader before = reader_of(folder.path("run"));
  ASSERT_TRUE(export_to_hf(before, folder.path("hf"), {}));
  ASSERT_TRUE(import_from_hf(folder.path("hf"), folder.path("again")));
  const CheckpointReader after = reader_of(folder.path("again"));
  for (const TensorSpec& tensor : model_tensors(model)) {
    std::vector<float> rounded = weights(before, tensor);
    std::vector<std::byte> bytes(2 * rounded.size());
    narrow("BF16", rounded, bytes);
    widen("BF16", bytes, rounded);
    EXPECT_EQ(rounded, weights(after, tensor)) << tensor.name;
  }
}

// x @ weight in GPT-2's Conv1D: the element for output o from input i lies at [i, o].
TEST(HfExport, Gpt2MatricesLieTransposedInTheFile) {
  const ModelSpec model = hf_test_models()[0];
  ASSERT_EQ(model.family, "gpt2");
  const TestFolder folder;
  make_checkpoint(folder.path("run"), model);
  const CheckpointReader reader = reader_of(folder.path("run"));
  ASSERT_TRUE(export_to_hf(reader, folder.path("hf"), {.dtype = "F32"}));
  const auto file = SafetensorsFile::open(folder.path("hf/model.safetensors"));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  const SafetensorsArray* fused = file->header().find("transformer.h.1.attn.c_attn.weight");
  ASSERT_NE(fused, nullptr);
  const auto h = static_cast<std::size_t>(model.hidden);
  std::vector<float> values(3 * h * h);
  ASSERT_TRUE(file->read(*fused, 0, std::as_writable_bytes(std::span(values))));
  const char* parts[] = {"q", "k", "v"};
  for (std::size_t p = 0; p < 3; ++p) {
    const TensorSpec tensor{.name = std::string("layers.1.attention.") + parts[p] + ".weight",
                            .shape = {model.hidden, model.hidden}};
    const std::vector<float> ours = weights(reader, tensor);
    for (std::size_t in = 0; in < h; ++in) {
      for (std::size_t out = 0; out < h; ++out) {
        ASSERT_EQ(values[in * 3 * h + p * h + out], ours[out * h + in]);
      }
    }
  }
}

TEST(HfExport, TheIndexNamesEveryTensorOnceAndItsSize) {
  const ModelSpec model = hf_test_models()[1];
  const TestFolder folder;
  make_checkpoint(folder.path("run"), model);
  ASSERT_TRUE(export_to_hf(reader_of(folder.path("run")), folder.path("hf"),
                           {.dtype = "BF16", .max_shard_bytes = 1000}));
  const Json index = read_json_file(folder.path("hf/model.safetensors.index.json")).value();
  EXPECT_EQ(index.at("metadata").at("total_size"), 2 * model.total_params());
  std::size_t tensors = 0;
  std::set<std::string> files;
  for (const auto& [name, file] : index.at("weight_map").items()) files.insert(file);
  for (const std::string& name : files) {
    const auto file = SafetensorsFile::open(folder.path("hf/" + name));
    ASSERT_TRUE(file) << name;
    const auto& arrays = file->header().arrays;
    tensors += arrays.size();
    // Over the limit is a tensor alone, never two.
    EXPECT_TRUE(arrays.size() == 1 || arrays.back().end <= 1000) << name;
    for (const SafetensorsArray& array : arrays) {
      EXPECT_EQ(index.at("weight_map").at(array.name), name);
    }
  }
  EXPECT_EQ(tensors, index.at("weight_map").size());
}

TEST(HfExport, NothingIsReplacedAndNothingIsLeftBehind) {
  const ModelSpec model = hf_test_models()[0];
  const TestFolder folder;
  make_checkpoint(folder.path("run"), model);
  const CheckpointReader reader = reader_of(folder.path("run"));
  fs::create_directories(folder.path("full"));
  folder.write("full/x", "mine");
  folder.write("file", "mine");
  for (const char* name : {"full", "full/", "file", "file/below"}) {
    EXPECT_FALSE(export_to_hf(reader, folder.path(name), {})) << name;
  }
  fs::create_directories(folder.path("empty"));
  EXPECT_TRUE(export_to_hf(reader, folder.path("empty/"), {}));
  EXPECT_TRUE(export_to_hf(reader, folder.path("new/below"), {}));
  EXPECT_EQ(folder.read("full/x"), "mine");
  std::set<std::string> left;
  for (const std::string& name : folder.names()) left.insert(name);
  EXPECT_EQ(left, (std::set<std::string>{"run", "full", "file", "empty", "new"}));
}

}  // namespace
}  // namespace copus
