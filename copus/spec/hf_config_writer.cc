// Writes a ModelSpec as a config.json. The writer also writes every field that has a default,
// because defaults differ between families and between versions of transformers.
#include "copus/spec/hf_config_writer.h"

#include <array>
#include <string_view>

#include "copus/base/check.h"

namespace copus {
namespace {

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "silu";
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_new";
  }
  return "";
}

Json number_or_null(std::int64_t n) { return n == 0 ? Json(nullptr) : Json(n); }

void write_gpt2(const ModelSpec& m, Json& j) {
  j["n_layer"] = m.layers;
  j["n_embd"] = m.hidden;
  j["n_head"] = m.heads;
  j["n_inner"] = m.ffn;
  j["n_positions"] = m.max_positions;
  j["layer_norm_epsilon"] = m.norm_eps;
  j["activation_function"] = activation_name(m.activation);
  for (const char* key : {"resid_pdrop", "attn_pdrop", "embd_pdrop"}) {
    j[key] = m.dropout ? 0.1 : 0.0;  // 0.1 is GPT-2's default; a spec does not hold the rate
  }
}

Json rope_scaling_json(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::kNone:
      return nullptr;
    case RopeScaling::kLinear:
      return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RopeScaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {"original_max_position_embeddings", scaling.original_max_positions}};
    case RopeScaling::kOther:
      return {{"rope_type", scaling.other}};
  }
  return nullptr;
}

// Writes the fields that all families except GPT-2 have.
void write_common(const ModelSpec& m, Json& j) {
  j["num_hidden_layers"] = m.layers;
  j["hidden_size"] = m.hidden;
  j["intermediate_size"] = m.ffn;
  j["num_attention_heads"] = m.heads;
  j["num_key_value_heads"] = m.kv_heads;
  j["max_position_embeddings"] = m.max_positions;
  j["rms_norm_eps"] = m.norm_eps;
  j["hidden_act"] = activation_name(m.activation);
  j["rope_theta"] = m.rope_theta;
  j["rope_scaling"] = rope_scaling_json(m.rope_scaling);
  j["attention_dropout"] = m.attention_dropout;
}

void write_llama_kind(const ModelSpec& m, Json& j) {
  write_common(m, j);
  j["head_dim"] = m.head_dim;
}

void write_llama(const ModelSpec& m, Json& j) {
  write_llama_kind(m, j);
  j["attention_bias"] = m.qkv_bias;
  j["mlp_bias"] = m.mlp_bias;
}

void write_mistral(const ModelSpec& m, Json& j) {
  write_llama_kind(m, j);
  j["sliding_window"] = number_or_null(m.sliding_window);
}

void write_qwen2(const ModelSpec& m, Json& j) {
  write_mistral(m, j);
  j["use_sliding_window"] = m.sliding_window > 0;
  j["max_window_layers"] = m.sliding_window > 0 ? m.full_layers : m.layers;
}

void write_qwen3(const ModelSpec& m, Json& j) {
  write_qwen2(m, j);
  j["attention_bias"] = m.qkv_bias;
}

void write_mixtral(const ModelSpec& m, Json& j) {
  write_mistral(m, j);
  j["num_local_experts"] = m.moe.experts;
  j["num_experts_per_tok"] = m.moe.experts_per_token;
}

void write_qwen3_moe(const ModelSpec& m, Json& j) {
  write_qwen3(m, j);
  j["num_experts"] = m.moe.experts;
  j["num_experts_per_tok"] = m.moe.experts_per_token;
  j["moe_intermediate_size"] = m.moe.expert_ffn;
  j["decoder_sparse_step"] = m.moe.layer_step;
}

void write_llama4_text(const ModelSpec& m, Json& j) {
  write_llama_kind(m, j);
  j["intermediate_size"] = m.moe.expert_ffn;
  j["intermediate_size_mlp"] = m.ffn;
  j["attention_bias"] = m.qkv_bias;
  j["num_local_experts"] = m.moe.experts;
  j["num_experts_per_tok"] = m.moe.experts_per_token;
  j["interleave_moe_layer_step"] = m.moe.layer_step;
}

void write_deepseek_v3(const ModelSpec& m, Json& j) {
  write_common(m, j);
  j["attention_bias"] = m.qkv_bias;
  j["q_lora_rank"] = number_or_null(m.mla.q_lora_rank);
  j["kv_lora_rank"] = m.mla.kv_lora_rank;
  j["qk_nope_head_dim"] = m.mla.qk_nope_head_dim;
  j["qk_rope_head_dim"] = m.mla.qk_rope_head_dim;
  j["v_head_dim"] = m.mla.v_head_dim;
  j["n_routed_experts"] = m.moe.experts;
  j["num_experts_per_tok"] = m.moe.experts_per_token;
  j["moe_intermediate_size"] = m.moe.expert_ffn;
  j["n_shared_experts"] = number_or_null(m.moe.shared_experts);
  j["first_k_dense_replace"] = m.moe.first_dense_layers;
  j["moe_layer_freq"] = m.moe.layer_step;
  j["topk_method"] = m.moe.router_correction_bias ? "noaux_tc" : "greedy";
  j["n_group"] = m.moe.router_groups;
  j["topk_group"] = m.moe.router_group_topk;
  j["routed_scaling_factor"] = m.moe.router_scale;
}

struct FamilyWriter {
  std::string_view model_type;
  const char* architecture;
  void (*write)(const ModelSpec&, Json&);
};

constexpr std::array kFamilyWriters = {
    FamilyWriter{"gpt2", "GPT2LMHeadModel", write_gpt2},
    FamilyWriter{"llama", "LlamaForCausalLM", write_llama},
    FamilyWriter{"mistral", "MistralForCausalLM", write_mistral},
    FamilyWriter{"qwen2", "Qwen2ForCausalLM", write_qwen2},
    FamilyWriter{"qwen3", "Qwen3ForCausalLM", write_qwen3},
    FamilyWriter{"mixtral", "MixtralForCausalLM", write_mixtral},
    FamilyWriter{"qwen3_moe", "Qwen3MoeForCausalLM", write_qwen3_moe},
    FamilyWriter{"deepseek_v3", "DeepseekV3ForCausalLM", write_deepseek_v3},
    FamilyWriter{"llama4_text", "Llama4ForCausalLM", write_llama4_text},
};

}  // namespace

Json hf_config_json(const ModelSpec& model, const std::string& dtype) {
  const FamilyWriter* family = nullptr;
  for (const FamilyWriter& each : kFamilyWriters) {
    if (model.family == each.model_type) family = &each;
  }
  COPUS_CHECK(family != nullptr);
  Json json;
  json["architectures"] = {family->architecture};
  json["model_type"] = model.family;
  json["_name_or_path"] = model.name;
  family->write(model, json);
  json["vocab_size"] = model.vocab;
  json["tie_word_embeddings"] = model.tied_embeddings;
  json["initializer_range"] = model.init_std;
  // The family's default tokens belong to its tokenizer, and this model may have another tokenizer.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["torch_dtype"] = dtype;
  return json;
}

}  // namespace copus
