#include "copus/spec/hf_config_writer.h"

#include <gtest/gtest.h>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_testing.h"

namespace copus {
namespace {

void expect_survives(const ModelSpec& model) {
  const std::string text = hf_config_json(model).dump();
  const Result<ModelSpec> again = parse_hf_config(text, "config.json");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(*again == model) << text << "\n" << hf_config_json(*again).dump();
}

Json small(const char* family) {
  return {{"model_type", family},     {"num_hidden_layers", 2},   {"hidden_size", 64},
          {"intermediate_size", 128}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"vocab_size", 100}};
}

TEST(HfConfigWriter, EveryModelOfTheCatalogComesBackTheSame) {
  ASSERT_FALSE(catalog_model_names().empty());
  for (const std::string& name : catalog_model_names()) {
    SCOPED_TRACE(name);
    expect_survives(load_model(name).value());
  }
}

// These configs state little, so the family's class fills in most fields.
TEST(HfConfigWriter, DefaultsAreWrittenOut) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    SCOPED_TRACE(family);
    expect_survives(parsed(small(family)));
  }
  expect_survives(parsed(
      {{"model_type", "gpt2"}, {"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 9}}));
}

TEST(HfConfigWriter, ValuesThatAreNoFamilysDefaultAreKept) {
  const Json changes[] = {
      {{"head_dim", 24}},
      {{"attention_bias", true}},
      {{"attention_dropout", 0.1}},
      {{"mlp_bias", true}},
      {{"tie_word_embeddings", true}},
      {{"hidden_act", "gelu"}},
      {{"hidden_act", "gelu_pytorch_tanh"}},
      {{"rms_norm_eps", 3e-7}, {"initializer_range", 0.123456789012345}},
      {{"rope_theta", 12345.678}},
      {{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}},
      {{"rope_parameters",
        {{"rope_type", "llama3"},
         {"rope_theta", 500000},
         {"factor", 8},
         {"low_freq_factor", 1},
         {"high_freq_factor", 4},
         {"original_max_position_embeddings", 8192}}}},
      {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}},
      {{"sliding_window", 77}, {"use_sliding_window", true}, {"max_window_layers", 0}},
      {{"sliding_window", 77}, {"use_sliding_window", true}, {"max_window_layers", 1}},
      {{"sliding_window", nullptr}},
      {{"_name_or_path", "someone/some-model"}},
  };
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    for (const Json& change : changes) {
      Json config = small(family);
      config.update(change);
      SCOPED_TRACE(config.dump());
      expect_survives(parsed(config));
    }
  }
}

TEST(HfConfigWriter, Gpt2KeepsItsDropoutAndItsHead) {
  const Json base = {
      {"model_type", "gpt2"}, {"n_layer", 2}, {"n_embd", 64}, {"n_head", 4}, {"vocab_size", 9}};
  for (const Json& change : {Json{{"resid_pdrop", 0}, {"attn_pdrop", 0}, {"embd_pdrop", 0}},
                             Json{{"tie_word_embeddings", false}}, Json{{"n_inner", 17}},
                             Json{{"activation_function", "gelu"}}}) {
    Json config = base;
    config.update(change);
    SCOPED_TRACE(config.dump());
    expect_survives(parsed(config));
  }
}

TEST(HfConfigWriter, SaysWhichClassAndTypeLoadIt) {
  const Json json = hf_config_json(load_model("gpt2-124m").value(), "bfloat16");
  EXPECT_EQ(json.at("architectures"), Json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(json.at("torch_dtype"), "bfloat16");
  EXPECT_TRUE(json.at("eos_token_id").is_null());
}

}  // namespace
}  // namespace copus
