#include "copus/train/checkpoint/hf_weights.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "copus/spec/catalog.h"
#include "copus/spec/hf_testing.h"

namespace copus {
namespace {

using Shape = std::vector<std::int64_t>;

Json wide_headed(const char* family) {
  return {{"model_type", family},    {"num_hidden_layers", 2},   {"hidden_size", 12},
          {"intermediate_size", 20}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"head_dim", 6},           {"vocab_size", 31}};
}

Json small_gpt2() {
  return {{"model_type", "gpt2"}, {"n_layer", 2},     {"n_embd", 12},
          {"n_head", 4},          {"vocab_size", 31}, {"n_positions", 9}};
}

std::map<std::string, Shape> shapes(const ModelSpec& model) {
  std::map<std::string, Shape> found;
  const std::vector<HfTensor> tensors = hf_tensors(model).value();
  for (const HfTensor& tensor : tensors) found[tensor.name] = tensor.shape;
  return found;
}

// Names and shapes as transformers' state_dict() has them.
TEST(HfWeights, Gpt2HasTransposedMatricesAndOneForQueryKeyValue) {
  const std::map<std::string, Shape> found = shapes(parsed(small_gpt2()));
  EXPECT_EQ(found.size(), 2 + 2 * 12 + 2);
  EXPECT_EQ(found.at("transformer.wte.weight"), (Shape{31, 12}));
  EXPECT_EQ(found.at("transformer.wpe.weight"), (Shape{9, 12}));
  EXPECT_EQ(found.at("transformer.h.1.attn.c_attn.weight"), (Shape{12, 36}));
  EXPECT_EQ(found.at("transformer.h.1.attn.c_attn.bias"), (Shape{36}));
  EXPECT_EQ(found.at("transformer.h.1.mlp.c_fc.weight"), (Shape{12, 48}));
  EXPECT_EQ(found.at("transformer.h.1.mlp.c_proj.weight"), (Shape{48, 12}));
  EXPECT_EQ(found.at("transformer.ln_f.bias"), (Shape{12}));
  EXPECT_EQ(found.count("lm_head.weight"), 0);  // the embedding is the head
}

TEST(HfWeights, LlamaKindHasItsMatricesAsTheyAre) {
  const std::map<std::string, Shape> found = shapes(parsed(wide_headed("llama")));
  EXPECT_EQ(found.size(), 1 + 2 * 9 + 2);
  EXPECT_EQ(found.at("model.embed_tokens.weight"), (Shape{31, 12}));
  EXPECT_EQ(found.at("model.layers.0.self_attn.q_proj.weight"), (Shape{24, 12}));
  EXPECT_EQ(found.at("model.layers.0.self_attn.k_proj.weight"), (Shape{12, 12}));
  EXPECT_EQ(found.at("model.layers.0.self_attn.o_proj.weight"), (Shape{12, 24}));
  EXPECT_EQ(found.at("model.layers.1.mlp.down_proj.weight"), (Shape{12, 20}));
  EXPECT_EQ(found.at("model.layers.1.post_attention_layernorm.weight"), (Shape{12}));
  EXPECT_EQ(found.at("model.norm.weight"), (Shape{12}));
  EXPECT_EQ(found.at("lm_head.weight"), (Shape{31, 12}));
}

TEST(HfWeights, QwensHaveTheirBiasesAndNorms) {
  const auto qwen2 = shapes(parsed(wide_headed("qwen2")));
  EXPECT_EQ(qwen2.at("model.layers.0.self_attn.k_proj.bias"), (Shape{12}));
  EXPECT_EQ(qwen2.count("model.layers.0.self_attn.o_proj.bias"), 0);
  const auto qwen3 = shapes(parsed(wide_headed("qwen3")));
  EXPECT_EQ(qwen3.at("model.layers.0.self_attn.q_norm.weight"), (Shape{6}));
  EXPECT_EQ(qwen3.count("model.layers.0.self_attn.q_proj.bias"), 0);
}

TEST(HfWeights, EveryTensorOfOursHasOnePlaceInEveryModelThatTrains) {
  int models = 0;
  for (const std::string& name : catalog_model_names()) {
    const ModelSpec model = load_model(name).value();
    const auto tensors = hf_tensors(model);
    ASSERT_EQ(tensors.has_value(), !model.is_moe()) << name;
    if (!tensors) continue;
    ++models;
    std::int64_t elements = 0;
    std::set<std::string> parts, names;
    for (const HfTensor& tensor : *tensors) {
      elements += element_count(tensor.shape);
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      EXPECT_EQ(with_model_prefix(model, tensor.name), tensor.name);
      EXPECT_FALSE(is_no_weight(model, tensor.name)) << tensor.name;
      for (const TensorSpec& part : tensor.parts) EXPECT_TRUE(parts.insert(part.name).second);
    }
    EXPECT_EQ(parts.size(), model_tensors(model).size());
    EXPECT_EQ(elements, model.total_params()) << name;
  }
  EXPECT_GT(models, 10);
}

TEST(HfWeights, AFamilyThatDoesNotTrainIsNamed) {
  const auto tensors = hf_tensors(load_model("mixtral-8x7b").value());
  ASSERT_FALSE(tensors);
  EXPECT_NE(tensors.error().message.find("of family mixtral; want gpt2, llama"), std::string::npos)
      << tensors.error().message;
}

TEST(HfWeights, TheOldNamesOfGpt2AreKnown) {
  const ModelSpec gpt2 = parsed(small_gpt2());
  EXPECT_EQ(with_model_prefix(gpt2, "h.0.attn.c_attn.weight"),
            "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(with_model_prefix(gpt2, "wte.weight"), "transformer.wte.weight");
  EXPECT_EQ(with_model_prefix(gpt2, "lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(with_model_prefix(gpt2, "score.weight"), "score.weight");
  EXPECT_TRUE(is_no_weight(gpt2, "transformer.h.0.attn.bias"));
  EXPECT_TRUE(is_no_weight(gpt2, "transformer.h.0.attn.masked_bias"));
  EXPECT_FALSE(is_no_weight(gpt2, "transformer.h.0.attn.c_attn.bias"));
  EXPECT_TRUE(is_no_weight(gpt2, "lm_head.weight"));
  const ModelSpec llama = parsed(wide_headed("llama"));
  EXPECT_TRUE(is_no_weight(llama, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(is_no_weight(llama, "lm_head.weight"));
}

TEST(HfWeights, TransposingTwiceChangesNothing) {
  const std::int64_t rows = 37, columns = 70;  // no multiples of a tile
  std::vector<float> values(static_cast<std::size_t>(rows * columns)), turned(values),
      again(values);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  transpose(values.data(), rows, columns, turned.data());
  EXPECT_EQ(turned[1], values[static_cast<std::size_t>(columns)]);
  EXPECT_EQ(turned[static_cast<std::size_t>(rows)], values[1]);
  transpose(turned.data(), columns, rows, again.data());
  EXPECT_EQ(again, values);
}

}  // namespace
}  // namespace copus
