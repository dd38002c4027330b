#include "copus/spec/hf_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "copus/base/json.h"
#include "copus/base/text_testing.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_testing.h"

namespace copus {
namespace {

const Json& llama_config() {
  static const Json kConfig = {
      {"model_type", "llama"},    {"num_hidden_layers", 2},   {"hidden_size", 64},
      {"intermediate_size", 128}, {"num_attention_heads", 4}, {"vocab_size", 100},
  };
  return kConfig;
}

const Json& deepseek_config() {
  static const Json kConfig = {
      {"model_type", "deepseek_v3"}, {"num_hidden_layers", 5},
      {"hidden_size", 64},           {"intermediate_size", 128},
      {"num_attention_heads", 4},    {"vocab_size", 100},
      {"kv_lora_rank", 16},          {"qk_nope_head_dim", 8},
      {"qk_rope_head_dim", 4},       {"v_head_dim", 8},
      {"n_routed_experts", 8},       {"num_experts_per_tok", 2},
      {"moe_intermediate_size", 32}, {"first_k_dense_replace", 1},
  };
  return kConfig;
}

// Returns `base` with the fields of `changes` set.
Json with(Json base, const Json& changes) {
  base.update(changes);
  return base;
}

TEST(HfConfig, LlamaLeavesTheRestToItsDefaults) {
  const ModelSpec m = parsed(llama_config());
  EXPECT_EQ(m.family, "llama");
  EXPECT_EQ(m.kv_heads, 4);
  EXPECT_EQ(m.head_dim, 16);
  EXPECT_EQ(m.max_positions, 2048);
  EXPECT_FALSE(m.tied_embeddings);
  EXPECT_FALSE(m.qkv_bias || m.attention_out_bias || m.mlp_bias || m.qk_norm || m.dropout);
  EXPECT_TRUE(m.gated_mlp);
  EXPECT_EQ(m.norm, Norm::kRmsNorm);
  EXPECT_EQ(m.positions, Positions::kRope);
  EXPECT_FALSE(m.is_moe());
}

TEST(HfConfig, DropoutOfTheAttentionAloneIsNotTheDropoutThatKeepsMasks) {
  const ModelSpec m = parsed(with(llama_config(), {{"attention_dropout", 0.1}}));
  EXPECT_FALSE(m.dropout);
  EXPECT_EQ(m.attention_dropout, 0.1);
  const Json deepseek = with(deepseek_config(), {{"attention_dropout", 0.1}});
  EXPECT_EQ(parsed(deepseek).attention_dropout, 0.1);
}

TEST(HfConfig, LlamaBiasesCoverTheirProjections) {
  const std::int64_t plain = parsed(llama_config()).total_params();
  const Json attention = with(llama_config(), {{"attention_bias", true}});
  EXPECT_EQ(parsed(attention).total_params() - plain, 2 * 4 * 64);
  const Json mlp = with(llama_config(), {{"mlp_bias", true}});
  EXPECT_EQ(parsed(mlp).total_params() - plain, 2 * (2 * 128 + 64));
}

TEST(HfConfig, AnExplicitHeadDimNeedNotDivideTheHiddenSize) {
  EXPECT_EQ(parsed(with(llama_config(), {{"head_dim", 24}})).head_dim, 24);
}

TEST(HfConfig, Gpt2HasItsEraInIt) {
  const Json config = {{"model_type", "gpt2"}, {"n_layer", 2},       {"n_embd", 64},
                       {"n_head", 4},          {"n_inner", nullptr}, {"vocab_size", 100}};
  const ModelSpec m = parsed(config);
  EXPECT_EQ(m.ffn, 256);
  EXPECT_EQ(m.kv_heads, 4);
  EXPECT_EQ(m.max_positions, 1024);
  EXPECT_TRUE(m.tied_embeddings && m.qkv_bias && m.attention_out_bias && m.mlp_bias && m.dropout);
  EXPECT_FALSE(m.gated_mlp);
  EXPECT_EQ(m.norm, Norm::kLayerNorm);
  EXPECT_EQ(m.positions, Positions::kLearned);

  const Json no_dropout = {{"resid_pdrop", 0}, {"attn_pdrop", 0.0}, {"embd_pdrop", 0}};
  EXPECT_FALSE(parsed(with(config, no_dropout)).dropout);
  EXPECT_FALSE(parsed(with(config, {{"tie_word_embeddings", false}})).tied_embeddings);
  EXPECT_EQ(parsed(with(config, {{"n_inner", 100}})).ffn, 100);
  expect_contains(failure(with(config, {{"n_head", 5}})),
                  "n_embd: got 64; want a multiple of n_head (5)");
}

TEST(HfConfig, MistralHasEightKeyValueHeadsUnlessNull) {
  const Json config =
      with(llama_config(), {{"model_type", "mistral"}, {"num_attention_heads", 16}});
  EXPECT_EQ(parsed(config).kv_heads, 8);
  EXPECT_EQ(parsed(with(config, {{"num_key_value_heads", nullptr}})).kv_heads, 16);
  EXPECT_EQ(parsed(with(config, {{"num_key_value_heads", 2}})).kv_heads, 2);
}

TEST(HfConfig, Qwen2HasBiasesOnQueriesKeysAndValuesAlone) {
  const ModelSpec m =
      parsed(with(llama_config(), {{"model_type", "qwen2"}, {"num_key_value_heads", 2}}));
  EXPECT_TRUE(m.qkv_bias);
  EXPECT_FALSE(m.attention_out_bias || m.mlp_bias || m.qk_norm);
}

TEST(HfConfig, Qwen3NormalisesQueriesAndKeysOverHeadsOf128) {
  const ModelSpec m =
      parsed(with(llama_config(), {{"model_type", "qwen3"}, {"num_key_value_heads", 2}}));
  EXPECT_TRUE(m.qk_norm);
  EXPECT_FALSE(m.qkv_bias);
  EXPECT_EQ(m.head_dim, 128);
}

TEST(HfConfig, MixtralExpertsHaveTheIntermediateSize) {
  const Json config = with(llama_config(), {{"model_type", "mixtral"},
                                            {"num_key_value_heads", 2},
                                            {"num_local_experts", 8},
                                            {"num_experts_per_tok", 2}});
  const ModelSpec m = parsed(config);
  EXPECT_EQ(m.moe.experts, 8);
  EXPECT_EQ(m.moe.experts_per_token, 2);
  EXPECT_EQ(m.moe.expert_ffn, 128);
  EXPECT_EQ(m.moe_layers(), 2);
  expect_contains(failure(with(config, {{"num_experts_per_tok", 9}})),
                  "num_experts_per_tok: got 9; want an integer from 1 to 8");
}

TEST(HfConfig, Qwen3MoeTakesEitherNameOfTheExpertCount) {
  const Json config = with(
      llama_config(),
      {{"model_type", "qwen3_moe"}, {"moe_intermediate_size", 32}, {"num_experts_per_tok", 2}});
  EXPECT_EQ(parsed(with(config, {{"num_experts", 16}})).moe.experts, 16);
  EXPECT_EQ(parsed(with(config, {{"num_local_experts", 16}})).moe.experts, 16);
  expect_contains(failure(config), "num_experts: missing");
}

TEST(HfConfig, Qwen3MoeHasExpertsInEveryStepthLayer) {
  const Json config = with(llama_config(), {{"model_type", "qwen3_moe"},
                                            {"moe_intermediate_size", 32},
                                            {"num_experts", 16},
                                            {"num_experts_per_tok", 2}});
  EXPECT_EQ(parsed(with(config, {{"mlp_only_layers", Json::array()}, {"decoder_sparse_step", 1}}))
                .moe_layers(),
            2);
  const ModelSpec alternate = parsed(with(config, {{"decoder_sparse_step", 2}}));
  EXPECT_FALSE(alternate.layer_is_moe(0));
  EXPECT_TRUE(alternate.layer_is_moe(1));
  expect_contains(failure(with(config, {{"decoder_sparse_step", 3}})),
                  "decoder_sparse_step: got 3; want an integer from 1 to 2");
  expect_contains(failure(with(config, {{"mlp_only_layers", Json::array({0})}})),
                  "mlp_only_layers: got");
  expect_contains(failure(with(config, {{"mlp_only_layers", 3}})), "mlp_only_layers: got");
}

TEST(HfConfig, DeepseekReadsLatentAttentionAndExperts) {
  const ModelSpec m = parsed(deepseek_config());
  EXPECT_EQ(parsed(with(deepseek_config(), {{"n_group", 2}, {"topk_group", 1}})).moe.router_groups,
            2);
  EXPECT_TRUE(m.mla.enabled);
  EXPECT_EQ(m.mla.q_lora_rank, 1536);  // the default of DeepSeek's configuration class
  EXPECT_EQ(m.kv_heads, m.heads);
  EXPECT_EQ(m.head_dim, 12);
  EXPECT_EQ(m.moe.shared_experts, 1);
  EXPECT_EQ(m.moe_layers(), 4);
  EXPECT_FALSE(m.layer_is_moe(0));
  EXPECT_TRUE(m.layer_is_moe(1));
  EXPECT_TRUE(m.moe.router_correction_bias);
}

TEST(HfConfig, DeepseekTakesNullForNoQueryRankAndNoSharedExperts) {
  const ModelSpec m =
      parsed(with(deepseek_config(), {{"q_lora_rank", nullptr}, {"n_shared_experts", nullptr}}));
  EXPECT_EQ(m.mla.q_lora_rank, 0);
  EXPECT_EQ(m.moe.shared_experts, 0);
  // The terms are queries from the hidden state, the latent, its norm, keys and values from the
  // latent, and the output.
  EXPECT_EQ(m.attention_params(), 64 * 4 * 12 + 64 * (16 + 4) + 16 + 16 * 4 * (8 + 8) + 4 * 8 * 64);
}

TEST(HfConfig, Llama4HasASharedExpertAndDenseLayersInBetween) {
  const Json text = with(llama_config(), {{"model_type", "llama4_text"},
                                          {"num_hidden_layers", 4},
                                          {"num_key_value_heads", 2},
                                          {"intermediate_size", 32},
                                          {"intermediate_size_mlp", 96},
                                          {"num_local_experts", 16},
                                          {"interleave_moe_layer_step", 2}});
  const ModelSpec m = parsed(with(text, {{"num_experts_per_tok", 1}}));
  EXPECT_EQ(m.ffn, 96);
  EXPECT_EQ(m.moe.expert_ffn, 32);
  EXPECT_EQ(m.moe.shared_experts, 1);
  EXPECT_EQ(m.head_dim, 128);
  EXPECT_FALSE(m.layer_is_moe(0));
  EXPECT_TRUE(m.layer_is_moe(1));
  EXPECT_EQ(m.moe_layers(), 2);
  const Json listed = with(text, {{"num_experts_per_tok", 1}, {"moe_layers", Json::array({1, 3})}});
  EXPECT_EQ(parsed(listed).moe_layers(), 2);
  expect_contains(failure(with(listed, {{"moe_layers", Json::array({0})}})),
                  "moe_layers: got other layers than those of interleave_moe_layer_step (2)");
  // A model of text and images is planned as its language model.
  EXPECT_EQ(parsed(Json{{"model_type", "llama4"}, {"text_config", listed}}).total_params(),
            m.total_params());
}

TEST(HfConfig, DeepseekCountsNoMultiTokenPrediction) {
  const Json config = with(deepseek_config(), {{"num_nextn_predict_layers", 1}});
  EXPECT_EQ(parsed(config).total_params(), parsed(deepseek_config()).total_params());
}

TEST(HfConfig, DeepseekRefusesWhatTheSpecCannotSay) {
  expect_contains(failure(with(deepseek_config(), {{"moe_layer_freq", 6}})),
                  "moe_layer_freq: got 6; want an integer from 1 to 5");
  expect_contains(failure(with(deepseek_config(), {{"first_k_dense_replace", 5}})),
                  "first_k_dense_replace: got 5; want an integer from 0 to 4");
}

TEST(HfConfig, ErrorsNameTheFieldAsTheConfigSpellsIt) {
  EXPECT_EQ(failure(with(llama_config(), {{"hidden_size", "64"}})),
            "config.json: hidden_size: got \"64\"; want an integer from 1 to 1000000");
  expect_contains(failure(with(llama_config(), {{"num_hidden_layers", 0}})),
                  "num_hidden_layers: got 0");
  expect_contains(failure(with(llama_config(), {{"num_hidden_layers", true}})),
                  "num_hidden_layers: got true");
  expect_contains(failure(with(llama_config(), {{"vocab_size", 1e12}})),
                  "vocab_size: got 1000000000000");
  expect_contains(failure(with(llama_config(), {{"vocab_size", nullptr}})), "vocab_size: missing");
  expect_contains(failure(with(llama_config(), {{"tie_word_embeddings", 1}})),
                  "tie_word_embeddings: got 1; want true or false");
  expect_contains(failure(with(llama_config(), {{"num_attention_heads", 3}})),
                  "hidden_size: got 64; want a multiple of num_attention_heads (3)");
  expect_contains(failure(with(llama_config(), {{"num_key_value_heads", 3}})),
                  "num_key_value_heads: got 3; want a divisor of num_attention_heads (4)");
  expect_contains(failure(with(llama_config(), {{"head_dim", 15}})),
                  "head_dim: got 15; want an even");
}

TEST(HfConfig, AnErrorTellsItsFieldBesideTheMessage) {
  const auto field_of = [](const Json& changes) {
    const std::string text = with(llama_config(), changes).dump();
    return parse_hf_config(text, "config.json").error().field;
  };
  EXPECT_EQ(field_of({{"num_attention_heads", 3}}), "hidden_size");
  EXPECT_EQ(field_of({{"hidden_act", "relu"}}), "hidden_act");
  EXPECT_EQ(field_of({{"head_dim", 15}}), "head_dim");
}

TEST(HfConfig, RefusesAModelBeyondAllBounds) {
  const Json config = with(llama_config(), {{"num_hidden_layers", 10000},
                                            {"num_attention_heads", 100},
                                            {"hidden_size", 1000000},
                                            {"intermediate_size", 10000000}});
  expect_contains(failure(config), "config.json: total parameters: got");
}

TEST(HfConfig, LetsUnknownKeysPass) {
  const Json config = with(llama_config(), {{"rope_theta", 10000.0}, {"torch_dtype", "bfloat16"}});
  EXPECT_EQ(parsed(config).total_params(), parsed(llama_config()).total_params());
}

TEST(HfConfig, UnknownOrMissingModelTypeListsTheSupportedOnes) {
  const std::string unknown = failure(with(llama_config(), {{"model_type", "lama"}}));
  expect_contains(unknown, "model_type: got \"lama\"; want gpt2, llama,");
  expect_contains(unknown, "or llama4_text (nearest: llama)");
  Json missing = llama_config();
  missing.erase("model_type");
  expect_contains(failure(missing), "model_type: missing; want gpt2");
  expect_contains(failure(with(llama_config(), {{"model_type", 3}})),
                  "model_type: got 3; want a string");
}

TEST(HfConfig, RefusesWhatIsNoJsonObject) {
  expect_contains(parse_hf_config("", "c.json").error().message, "c.json: got nothing");
  expect_contains(parse_hf_config("{\"model_type\":", "c.json").error().message, "c.json: byte");
  expect_contains(parse_hf_config("[1]", "c.json").error().message, "want an object");
  expect_contains(parse_hf_config("null", "c.json").error().message, "want an object");
}

TEST(HfConfig, EveryTruncationOfAConfigIsAnError) {
  const std::string text = deepseek_config().dump();
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(parse_hf_config(text.substr(0, length), "c.json")) << length;
  }
}

TEST(HfConfig, TakesItsNameFromTheConfigThenFromTheFile) {
  const auto name = [](const Json& config, const std::string& where) {
    return parse_hf_config(config.dump(), where).value().name;
  };
  EXPECT_EQ(name(with(llama_config(), {{"_name_or_path", "org/model"}, {"name", "x"}}), "a.json"),
            "org/model");
  EXPECT_EQ(name(with(llama_config(), {{"_name_or_path", ""}, {"name", "x"}}), "a.json"), "x");
  EXPECT_EQ(name(llama_config(), "models/my-model.json"), "my-model");
  EXPECT_EQ(name(llama_config(), "models/my-model/config.json"), "my-model");
  EXPECT_EQ(name(llama_config(), "config.json"), "config");
  EXPECT_EQ(name(with(llama_config(), {{"name", "a\x1b[31m\n"}}), "a.json"), "a?[31m?");
}

class LoadModel : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              fmt::format("copus_hf_{}_{}", getpid(),
                          testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_ / "my-model");
    std::ofstream(folder_ / "my-model" / "config.json") << llama_config().dump();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(LoadModel, FindsEveryCatalogModelUnderItsName) {
  const std::vector<std::string> names = catalog_model_names();
  EXPECT_GE(names.size(), 28U);
  for (const std::string& name : names) {
    const Result<ModelSpec> model = load_model(name);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->name, name);
  }
}

TEST_F(LoadModel, ReadsAFileOrTheFolderThatHoldsIt) {
  for (const auto& path : {folder_ / "my-model", folder_ / "my-model" / "config.json"}) {
    const Result<ModelSpec> model = load_model(path.string());
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->name, "my-model");
    EXPECT_EQ(model->hidden, 64);
  }
}

TEST_F(LoadModel, WhatLooksLikeAPathGivesAFileError) {
  expect_contains(load_model("no/such/model").error().message,
                  "model: got no/such/model, and there is no such file");
  expect_contains(load_model("nosuch.json").error().message,
                  "model: got nosuch.json, and there is no such file");
  expect_contains(load_model(folder_.string()).error().message, "config.json: no such file");
  expect_contains(load_model("/dev/null").error().message, "got a device");
}

TEST_F(LoadModel, AnUnknownNameGetsTheNearestOnes) {
  expect_contains(load_model("lama-3-8b").error().message, "llama-3-8b");
  EXPECT_FALSE(load_model(""));
}

}  // namespace
}  // namespace copus
