#include "copus/spec/hf_numerics.h"

#include <gtest/gtest.h>

#include "copus/spec/hf_testing.h"

namespace copus {
namespace {

Json config(const std::string& family, const Json& changes = Json::object()) {
  Json all = {
      {"model_type", family},
      {"num_hidden_layers", 2},
      {"hidden_size", 64},
      {"intermediate_size", 128},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 2},
      {"vocab_size", 100},
      {"num_local_experts", 4},
      {"num_experts_per_tok", 2},
      {"moe_intermediate_size", 8},
      {"n_routed_experts", 4},
      {"kv_lora_rank", 16},
      {"qk_nope_head_dim", 8},
      {"qk_rope_head_dim", 4},
      {"v_head_dim", 8},
      {"first_k_dense_replace", 1},
      {"n_layer", 2},
      {"n_embd", 64},
      {"n_head", 4},
  };
  all.update(changes);
  return all;
}

TEST(HfNumerics, EveryFamilyHasTheEpsilonOfItsClass) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "deepseek_v3"}) {
    EXPECT_EQ(parsed(config(family)).norm_eps, 1e-6) << family;
    EXPECT_EQ(parsed(config(family, {{"rms_norm_eps", 1e-5}})).norm_eps, 1e-5) << family;
  }
  EXPECT_EQ(parsed(config("mixtral")).norm_eps, 1e-5);
  EXPECT_EQ(parsed(config("gpt2")).norm_eps, 1e-5);
  EXPECT_EQ(parsed(config("gpt2", {{"layer_norm_epsilon", 1e-6}})).norm_eps, 1e-6);
  EXPECT_EQ(failure(config("llama", {{"rms_norm_eps", -1}})),
            "config.json: rms_norm_eps: got -1; want a number from 0 to 1");
}

TEST(HfNumerics, WeightsStartWithTheSpreadThatTheConfigSays) {
  EXPECT_EQ(parsed(config("llama")).init_std, 0.02);
  EXPECT_EQ(parsed(config("gpt2", {{"initializer_range", 0.01}})).init_std, 0.01);
}

TEST(HfNumerics, ActivationsHaveTheNamesOfTransformers) {
  EXPECT_EQ(parsed(config("llama")).activation, Activation::kSilu);
  EXPECT_EQ(parsed(config("gpt2")).activation, Activation::kGeluTanh);
  const auto named = [](const char* name) {
    return parsed(config("llama", {{"hidden_act", name}})).activation;
  };
  EXPECT_EQ(named("silu"), Activation::kSilu);
  EXPECT_EQ(named("swish"), Activation::kSilu);
  EXPECT_EQ(named("gelu"), Activation::kGelu);
  EXPECT_EQ(named("gelu_new"), Activation::kGeluTanh);
  EXPECT_EQ(named("gelu_pytorch_tanh"), Activation::kGeluTanh);
  EXPECT_EQ(parsed(config("gpt2", {{"activation_function", "gelu"}})).activation,
            Activation::kGelu);
  EXPECT_EQ(failure(config("llama", {{"hidden_act", "relu"}})),
            "config.json: hidden_act: got \"relu\"; want silu (or swish), gelu or gelu_new (or "
            "gelu_pytorch_tanh)");
}

TEST(HfNumerics, RopeThetaMayBeInsideOrOutside) {
  EXPECT_EQ(parsed(config("llama")).rope_theta, 10000);
  EXPECT_EQ(parsed(config("mixtral")).rope_theta, 1e6);
  EXPECT_EQ(parsed(config("llama", {{"rope_theta", 5e5}})).rope_theta, 5e5);
  const Json inside = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}}};
  for (const char* family : {"llama", "deepseek_v3"}) {
    const ModelSpec m = parsed(config(family, inside));
    EXPECT_EQ(m.rope_theta, 5e5);
    EXPECT_EQ(m.rope_scaling.kind, RopeScaling::kNone);
  }
  Json both = inside;
  both["rope_theta"] = 1e4;
  EXPECT_EQ(parsed(config("llama", both)).rope_theta, 5e5);
}

TEST(HfNumerics, ReadsLlama3ScalingUnderEitherName) {
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const RopeScaling read = parsed(config("llama", {{key, scaling}})).rope_scaling;
    EXPECT_EQ(read.kind, RopeScaling::kLlama3);
    EXPECT_EQ(read.factor, 8);
    EXPECT_EQ(read.low_freq_factor, 1);
    EXPECT_EQ(read.high_freq_factor, 4);
    EXPECT_EQ(read.original_max_positions, 8192);
  }
  Json flat = scaling;
  flat["low_freq_factor"] = 4;
  EXPECT_EQ(failure(config("llama", {{"rope_scaling", flat}})),
            "config.json: rope_scaling: high_freq_factor: got 4; want more than low_freq_factor "
            "(4)");
  Json incomplete = scaling;
  incomplete.erase("factor");
  EXPECT_EQ(failure(config("llama", {{"rope_scaling", incomplete}})),
            "config.json: rope_scaling: factor: missing; want a number from 1 to 1e+06");
}

TEST(HfNumerics, ReadsLinearScalingUnderItsOldKey) {
  const RopeScaling read =
      parsed(config("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}})).rope_scaling;
  EXPECT_EQ(read.kind, RopeScaling::kLinear);
  EXPECT_EQ(read.factor, 2);
}

TEST(HfNumerics, NullAndDefaultScaleNothing) {
  for (const Json& scaling : {Json(nullptr), Json::object(), Json{{"rope_type", "default"}}}) {
    EXPECT_EQ(parsed(config("qwen2", {{"rope_scaling", scaling}})).rope_scaling.kind,
              RopeScaling::kNone);
  }
  EXPECT_EQ(failure(config("llama", {{"rope_scaling", 2}})),
            "config.json: rope_scaling: got 2; want an object");
}

TEST(HfNumerics, OtherKindsOfScalingAreRememberedByName) {
  const Json yarn = {{"type", "yarn"}, {"factor", 40}, {"mscale", 1.0}};
  const RopeScaling read = parsed(config("deepseek_v3", {{"rope_scaling", yarn}})).rope_scaling;
  EXPECT_EQ(read.kind, RopeScaling::kOther);
  EXPECT_EQ(read.other, "yarn");
}

TEST(HfNumerics, RopeScalingWinsOverRopeParameters) {
  const ModelSpec m = parsed(
      config("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
                       {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}}}));
  EXPECT_EQ(m.rope_scaling.kind, RopeScaling::kLinear);
  EXPECT_EQ(m.rope_theta, 5e5);
}

TEST(HfNumerics, SlidingWindowsCountWhereTheFamilyUsesThem) {
  const Json window = {{"sliding_window", 512}};
  EXPECT_EQ(parsed(config("llama", window)).sliding_window, 0);
  EXPECT_EQ(parsed(config("mistral")).sliding_window, 4096);
  EXPECT_EQ(parsed(config("mistral", window)).sliding_window, 512);
  EXPECT_EQ(parsed(config("mistral", {{"sliding_window", nullptr}})).sliding_window, 0);
  EXPECT_EQ(parsed(config("mixtral")).sliding_window, 0);
  EXPECT_EQ(parsed(config("mixtral", window)).sliding_window, 512);
  for (const char* family : {"qwen2", "qwen3", "qwen3_moe"}) {
    EXPECT_EQ(parsed(config(family, window)).sliding_window, 0) << family;
    Json used = window;
    used["use_sliding_window"] = true;
    // By default, the window begins at layer 28, which this model does not have.
    EXPECT_EQ(parsed(config(family, used)).sliding_window, 0) << family;
    used["max_window_layers"] = 0;
    EXPECT_EQ(parsed(config(family, used)).sliding_window, 512) << family;
    used["max_window_layers"] = 1;
    const ModelSpec some = parsed(config(family, used));
    EXPECT_EQ(some.full_layers, 1) << family;
    EXPECT_GT(some.mean_context(4096), parsed(config("mistral", window)).mean_context(4096));
    EXPECT_LT(some.mean_context(4096), 2048);
  }
}

TEST(HfNumerics, TheCatalogScalesLlama31And32AsPublished) {
  for (const char* name : {"llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b"}) {
    const RopeScaling scaling = load_model(name).value().rope_scaling;
    EXPECT_EQ(scaling.kind, RopeScaling::kLlama3) << name;
    EXPECT_EQ(scaling.factor, 8) << name;
    EXPECT_EQ(scaling.original_max_positions, 8192) << name;
  }
  for (const char* name : {"llama-3.2-1b", "llama-3.2-3b"}) {
    EXPECT_EQ(load_model(name).value().rope_scaling.factor, 32) << name;
  }
  EXPECT_EQ(load_model("llama-3-8b").value().rope_scaling.kind, RopeScaling::kNone);
}

}  // namespace
}  // namespace copus
