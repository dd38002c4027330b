#include "copus/train/checkpoint/hf_import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "copus/base/test_folder.h"
#include "copus/interop/half_floats.h"
#include "copus/interop/safetensors.h"
#include "copus/train/checkpoint/hf_test_models.h"
#include "copus/train/checkpoint/hf_weights.h"

namespace copus {
namespace {

namespace fs = std::filesystem;

struct Array {
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
  std::string dtype = "F32";
};
using Arrays = std::map<std::string, Array>;

Array array_of(std::vector<std::int64_t> shape, float first = 0) {
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  Array array{.shape = std::move(shape), .bytes = std::vector<std::byte>(values.size() * 4)};
  narrow("F32", values, array.bytes);
  return array;
}

// Arrays for all tensors of hf_tensors(); their elements are numbered consecutively.
Arrays arrays_of(const ModelSpec& model) {
  Arrays arrays;
  const std::vector<HfTensor> tensors = hf_tensors(model).value();
  for (const HfTensor& tensor : tensors) arrays[tensor.name] = array_of(tensor.shape);
  return arrays;
}

void write_arrays(const std::string& path, const Arrays& arrays) {
  std::vector<SafetensorsArray> header;
  for (const auto& [name, array] : arrays) {
    header.push_back({.name = name, .dtype = array.dtype, .shape = array.shape});
  }
  auto writer = SafetensorsWriter::create(path, header, {});
  ASSERT_TRUE(writer) << writer.error().message;
  for (const auto& [name, array] : arrays) ASSERT_TRUE(writer->write(array.bytes));
  ASSERT_TRUE(writer->finish());
}

class HfImport : public testing::Test {
 protected:
  void use(const Json& config) {
    model_ = hf_test_model(config);
    arrays_ = arrays_of(model_);
    fs::create_directories(folder_.path("hf"));
    folder_.write("hf/config.json", config.dump());
  }
  void SetUp() override { use(hf_test_config("gpt2")); }

  Result<HfImported> import() {
    fs::remove_all(folder_.path("run"));
    if (!arrays_.empty()) write_arrays(folder_.path("hf/model.safetensors"), arrays_);
    return import_from_hf(folder_.path("hf"), folder_.path("run"));
  }
  // The error of an import; checks that the import has begun no run.
  std::string failure() {
    const Result<HfImported> imported = import();
    EXPECT_FALSE(fs::exists(folder_.path("run/checkpoints/step-0")));
    return imported ? "imported" : imported.error().message;
  }
  void expect_failure(const std::string& part) {
    const std::string text = failure();
    EXPECT_TRUE(contains(text, part)) << text;
  }

  TestFolder folder_;
  ModelSpec model_;
  Arrays arrays_;
};

// Computed by hand: c_attn is [in, 3 * out], and its element n = 36 * in + out.
TEST_F(HfImport, Gpt2IsTransposedAndTakenApart) {
  ASSERT_TRUE(import());
  const CheckpointReader reader = reader_of(folder_.path("run"));
  const std::vector<float> k =
      weights(reader, {.name = "layers.0.attention.k.weight", .shape = {12, 12}});
  EXPECT_EQ(k[0], 12);       // out 0, in 0
  EXPECT_EQ(k[1], 36 + 12);  // out 0, in 1
  EXPECT_EQ(k[12 * 5 + 2], 2 * 36 + 12 + 5);
  const std::vector<float> v =
      weights(reader, {.name = "layers.1.attention.v.bias", .shape = {12}});
  EXPECT_EQ(v[3], 27);
  const std::vector<float> down =
      weights(reader, {.name = "layers.1.mlp.down.weight", .shape = {12, 48}});
  EXPECT_EQ(down[48 * 7 + 30], 30 * 12 + 7);
}

TEST_F(HfImport, OldFilesOfGpt2AreReadAndTheirMasksLeftOut) {
  Arrays old;
  for (const auto& [name, array] : arrays_)
    old[name.substr(std::string("transformer.").size())] = array;
  old["h.0.attn.bias"] = array_of({1, 1, 9, 9});
  old["h.1.attn.masked_bias"] = array_of({1});
  arrays_ = old;
  const Result<HfImported> imported = import();
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->ignored, (std::vector<std::string>{"h.0.attn.bias", "h.1.attn.masked_bias"}));
  EXPECT_EQ(imported->tensors, 28);
  const CheckpointReader reader = reader_of(folder_.path("run"));
  EXPECT_EQ(weights(reader, {.name = "final_norm.bias", .shape = {12}})[11], 11);
}

TEST_F(HfImport, HalfFormatsAreReadExactly) {
  const std::string name = "transformer.ln_f.weight";
  std::vector<float> values(12);
  for (std::size_t i = 0; i < 12; ++i) values[i] = std::ldexp(1.25F, static_cast<int>(i) - 6);
  Array& bf16 = arrays_[name];
  bf16.dtype = "BF16";
  bf16.bytes.resize(24);
  narrow("BF16", values, bf16.bytes);
  const Result<HfImported> imported = import();
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->formats, (std::vector<std::string>{"BF16", "F32"}));
  EXPECT_EQ(weights(reader_of(folder_.path("run")), {.name = "final_norm.weight", .shape = {12}}),
            values);
}

TEST_F(HfImport, WhatIsMissingIsNamed) {
  arrays_.erase("transformer.h.1.ln_2.bias");
  arrays_.erase("transformer.wpe.weight");
  expect_failure(": got no transformer.wpe.weight, transformer.h.1.ln_2.bias; want all 28 tensors");
}

TEST_F(HfImport, WhatHasNoPlaceIsNamed) {
  arrays_["transformer.h.2.ln_1.weight"] = array_of({12});
  expect_failure(": got transformer.h.2.ln_1.weight; want only the tensors of the gpt2 model");
  arrays_.erase("transformer.h.2.ln_1.weight");
  arrays_["score.weight"] = array_of({12});
  expect_failure(": got score.weight; want only the tensors");
}

TEST_F(HfImport, AShapeThatDoesNotFitIsNamedWithTheRightOne) {
  arrays_["transformer.h.0.mlp.c_fc.weight"] = array_of({48, 12});  // as Linear would have it
  expect_failure(
      "model.safetensors: transformer.h.0.mlp.c_fc.weight: shape: got [48, 12]; want [12, 48]");
}

TEST_F(HfImport, AFormatThatIsNoFloatIsNamed) {
  arrays_["transformer.ln_f.bias"].dtype = "I32";
  expect_failure("transformer.ln_f.bias: got I32; want F32, BF16 or F16");
}

TEST_F(HfImport, WeightsThatAreNotFiniteAreRefused) {
  std::vector<float> values(12, 1.0F);
  values[7] = std::nanf("");
  narrow("F32", values, arrays_["transformer.ln_f.bias"].bytes);
  expect_failure("transformer.ln_f.bias: element 7: got nan; want finite weights");
}

TEST_F(HfImport, ATiedHeadInTheFileIsLeftOutAnUntiedOneIsWanted) {
  arrays_["lm_head.weight"] = array_of({31, 12});
  const Result<HfImported> imported = import();
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->ignored, (std::vector<std::string>{"lm_head.weight"}));
  use(hf_test_config("llama"));
  arrays_.erase("lm_head.weight");
  expect_failure(": got no lm_head.weight; want all 21 tensors");
}

TEST_F(HfImport, FilesAreAskedForAsTheyMustBe) {
  arrays_.clear();
  expect_failure("got neither model.safetensors nor model.safetensors.index.json");
  folder_.write("hf/pytorch_model.bin", "x");
  expect_failure("save_pretrained");
  folder_.write("hf/model.safetensors", "x");
  expect_failure("model.safetensors");
  fs::remove(folder_.path("hf/config.json"));
  expect_failure("config.json");
  fs::remove_all(folder_.path("hf"));
  expect_failure("hf: not a folder");
}

TEST_F(HfImport, AnIndexMustBeTrue) {
  Arrays first, second;
  Json map;
  for (const auto& [name, array] : arrays_) {
    const bool is_first = first.size() < 10;
    (is_first ? first : second)[name] = array;
    map[name] = is_first ? "a.safetensors" : "b.safetensors";
  }
  const auto index = [&](const Json& weight_map) {
    folder_.write("hf/model.safetensors.index.json", Json{{"weight_map", weight_map}}.dump());
  };
  write_arrays(folder_.path("hf/a.safetensors"), first);
  write_arrays(folder_.path("hf/b.safetensors"), second);
  const std::string one = first.begin()->first;
  arrays_.clear();
  index(map);
  ASSERT_TRUE(import());
  fs::remove_all(folder_.path("run"));
  Json wrong = map;
  wrong[one] = "b.safetensors";
  index(wrong);
  expect_failure(one + ": got b.safetensors, which lacks this tensor; want a.safetensors");
  wrong[one] = "../a.safetensors";
  index(wrong);
  expect_failure("want the name of a .safetensors file beside it");
  wrong[one] = 7;
  index(wrong);
  expect_failure("want the name of a .safetensors file beside it");
  index(Json::array());
  expect_failure("weight_map");
  index(map);
  write_arrays(folder_.path("hf/b.safetensors"), first);
  expect_failure("got it in a.safetensors too; want each tensor once");
}

TEST_F(HfImport, ARunThatHasBegunIsLeftAlone) {
  ASSERT_TRUE(import());
  const auto again = import_from_hf(folder_.path("hf"), folder_.path("run"));
  ASSERT_FALSE(again);
  EXPECT_TRUE(contains(again.error().message, "run: got a run with checkpoints (step 0)"));
  fs::create_directories(folder_.path("other"));
  folder_.write("other/events.jsonl", "");
  EXPECT_FALSE(import_from_hf(folder_.path("hf"), folder_.path("other")));
}

TEST_F(HfImport, AFamilyThatDoesNotTrainIsRefused) {
  folder_.write("hf/config.json", Json{{"model_type", "mixtral"},
                                       {"num_hidden_layers", 2},
                                       {"hidden_size", 12},
                                       {"intermediate_size", 20},
                                       {"num_attention_heads", 2},
                                       {"num_key_value_heads", 2},
                                       {"num_local_experts", 2},
                                       {"num_experts_per_tok", 1},
                                       {"vocab_size", 31}}
                                      .dump());
  expect_failure("of family mixtral; want gpt2, llama");
}

}  // namespace
}  // namespace copus
