// For tests: small models of the families that have a Hugging Face layout, and checkpoints of them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "copus/base/json.h"
#include "copus/spec/hf_config.h"
#include "copus/train/checkpoint/folder.h"
#include "copus/train/checkpoint/hf_import.h"
#include "copus/train/checkpoint/reader.h"
#include "copus/train/checkpoint/weights_import.h"

namespace copus {

inline Json hf_test_config(const std::string& family) {
  if (family == "gpt2") {
    return {{"model_type", "gpt2"}, {"n_layer", 2},     {"n_embd", 12},
            {"n_head", 4},          {"vocab_size", 31}, {"n_positions", 9}};
  }
  return {{"model_type", family},    {"num_hidden_layers", 2},   {"hidden_size", 12},
          {"intermediate_size", 20}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"head_dim", 6},           {"vocab_size", 31},         {"max_position_embeddings", 64}};
}

inline ModelSpec hf_test_model(const Json& config) {
  return parse_hf_config(config.dump(), "test").value();
}

// GPT-2 first, then those of llama's kind, one of them with a tied head and with every bias.
inline std::vector<ModelSpec> hf_test_models() {
  std::vector<ModelSpec> models;
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2", "qwen3"}) {
    models.push_back(hf_test_model(hf_test_config(family)));
  }
  Json config = hf_test_config("llama");
  config.update({{"tie_word_embeddings", true}, {"attention_bias", true}, {"mlp_bias", true}});
  models.push_back(hf_test_model(config));
  return models;
}

// Weights that are all different, norms and biases too.
inline void fill(const TensorSpec& tensor, std::span<float> out) {
  TensorSpec spread = tensor;
  spread.init_std = 1;
  initial_values(spread, 5, 0, static_cast<std::int64_t>(out.size()), out.data());
}

inline void make_checkpoint(const std::string& run_dir, const ModelSpec& model,
                            std::int64_t seq_len = 1) {
  Manifest manifest;
  manifest.model = model;
  manifest.seq_len = seq_len;
  const auto source = [](const TensorSpec& tensor, std::span<float> out) -> Result<void> {
    fill(tensor, out);
    return {};
  };
  const Result<void> written = write_weights_checkpoint(run_dir, manifest, source);
  ASSERT_TRUE(written) << written.error().message;
}

inline CheckpointReader reader_of(const std::string& run_dir) {
  return CheckpointReader::open(checkpoint_folder(run_dir, 0)).value();
}

inline std::vector<float> weights(const CheckpointReader& reader, const TensorSpec& tensor) {
  const std::int64_t size = element_count(tensor.shape);
  std::vector<float> values(static_cast<std::size_t>(size));
  const Stripe whole{0, tensor.shape.size() > 1 ? tensor.shape[1] : 1, 0, size};
  const Result<void> read = reader.read(StateArray::kWeight, tensor.name, whole, values);
  EXPECT_TRUE(read) << read.error().message;
  return values;
}

}  // namespace copus
