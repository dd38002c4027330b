#include "copus/train/checkpoint/same_model.h"

#include <gtest/gtest.h>

#include <functional>

#include "copus/train/checkpoint/test_checkpoints.h"

namespace copus {
namespace {

class SameModel : public ::testing::Test {
 protected:
  // What is said of a run with this model from a checkpoint of `saved`; empty: it can go on.
  std::string verdict_on(const ModelSpec& model, const ModelSpec& saved = tiny_model()) const {
    EXPECT_EQ(save_checkpoint(folder_.path(), manifest_of(saved, ParallelPlan(), 1)), "");
    const Result<CheckpointReader> reader =
        CheckpointReader::open(checkpoint_folder(folder_.path(), 1));
    if (!reader) return reader.error().message;
    const Result<void> same = check_same_model(model, *reader);
    return same ? "" : same.error().message;
  }

 private:
  TestFolder folder_;
};

TEST_F(SameModel, IsOneWithTheSameTensorsThatMeanTheSame) {
  EXPECT_EQ(verdict_on(tiny_model()), "");
  ModelSpec model = tiny_model();
  model.name = "renamed";
  model.max_positions = 4096;
  model.init_std = 0.5;
  model.attention_dropout = 0.1;
  EXPECT_EQ(verdict_on(model), "") << "none of these changes what the weights mean";
}

TEST_F(SameModel, TheFamilyIsOnlyAName) {
  ModelSpec mistral = tiny_model();
  mistral.family = "mistral";
  EXPECT_EQ(verdict_on(tiny_model(), mistral), "");
  EXPECT_EQ(verdict_on(mistral, tiny_model()), "");
  // A config of the family llama has no sliding window.
  mistral.sliding_window = 4;
  EXPECT_TRUE(contains(verdict_on(tiny_model(), mistral),
                       "--model: got sliding_window = null; want 4, as "));
  EXPECT_TRUE(contains(verdict_on(mistral, tiny_model()),
                       "--model: got sliding_window = 4; want null, as "));
}

TEST_F(SameModel, OtherTensorsAreAnother) {
  ModelSpec model = tiny_model();
  model.ffn += 8;
  EXPECT_TRUE(contains(verdict_on(model), "--model: got one with layers.0.mlp.gate.weight"))
      << verdict_on(model);
}

// All tensors have the same sizes with half as many heads that are twice as wide.
TEST_F(SameModel, TheSameTensorsInOtherHeadsAreAnother) {
  ModelSpec model = tiny_model();
  model.heads /= 2;
  model.kv_heads /= 2;
  model.head_dim *= 2;
  EXPECT_TRUE(contains(verdict_on(model), "--model: got num_attention_heads = 2; want 4, as "))
      << verdict_on(model);
}

TEST_F(SameModel, WhatHasNoTensorCountsToo) {
  const std::function<void(ModelSpec&)> changes[] = {
      [](ModelSpec& m) { m.rope_theta *= 2; },
      [](ModelSpec& m) { m.norm_eps *= 2; },
      [](ModelSpec& m) { m.activation = Activation::kGelu; },
      [](ModelSpec& m) {
        m.rope_scaling = {.kind = RopeScaling::kLinear, .factor = 2, .other = ""};
      },
  };
  for (const auto& change : changes) {
    ModelSpec model = tiny_model();
    change(model);
    EXPECT_TRUE(verdict_on(model).starts_with("--model: got ")) << verdict_on(model);
  }
}

}  // namespace
}  // namespace copus
