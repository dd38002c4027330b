// Reads a ModelSpec from a Hugging Face config.json. A field that a config leaves out gets the
// default of its family's configuration class. The main sizes of a model have no default here,
// because a config without them is a mistake.
#include "copus/spec/hf_config.h"

#include <array>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "copus/base/json.h"
#include "copus/base/text.h"
#include "copus/spec/catalog.h"
#include "copus/spec/hf_numerics.h"

namespace copus {
namespace {

// The limits of ModelSpec::validate(). They are checked here too, so that an error names the field
// as the config spells it.
constexpr std::int64_t kMaxLayers = 10'000;
constexpr std::int64_t kMaxHidden = 1'000'000;
constexpr std::int64_t kMaxFfn = 10'000'000;
constexpr std::int64_t kMaxHeads = 100'000;
constexpr std::int64_t kMaxHeadDim = 100'000;
constexpr std::int64_t kMaxVocab = 100'000'000;
constexpr std::int64_t kMaxRank = 1'000'000;
constexpr std::int64_t kMaxExperts = 100'000;
constexpr std::int64_t kMaxSharedExperts = 10'000;

struct Config {
  const Json& json;
  std::string where;
  FieldReader fields;

  // FieldReader treats a null field as absent. In Hugging Face's classes, null overrides the
  // default.
  bool is_null(const char* key) const { return json.contains(key) && json.at(key).is_null(); }
};

// Returns size / divisor. It is an error if `divisor` does not divide `size`.
std::int64_t divided(Config& c, const char* key, std::int64_t size, const char* divisor_key,
                     std::int64_t divisor) {
  if (size % divisor != 0) {
    c.fields.fail(error_in(c.where, field_error(key, "got {}; want a multiple of {} ({})", size,
                                                divisor_key, divisor)));
  }
  return size / divisor;
}

void read_gpt2(Config& c, ModelSpec& m) {
  FieldReader& f = c.fields;
  m.layers = f.integer("n_layer", 1, kMaxLayers);
  m.hidden = f.integer("n_embd", 1, kMaxHidden);
  m.heads = f.integer("n_head", 1, kMaxHeads);
  m.kv_heads = m.heads;
  m.head_dim = divided(c, "n_embd", m.hidden, "n_head", m.heads);
  m.ffn = f.integer_or("n_inner", 4 * m.hidden, 1, kMaxFfn);
  m.vocab = f.integer("vocab_size", 1, kMaxVocab);
  m.max_positions = f.integer_or("n_positions", 1024, 1, kMaxPositions);
  m.tied_embeddings = f.boolean_or("tie_word_embeddings", true);
  m.gated_mlp = false;
  m.norm = Norm::kLayerNorm;
  m.positions = Positions::kLearned;
  m.qkv_bias = m.attention_out_bias = m.mlp_bias = true;
  for (const char* key : {"resid_pdrop", "attn_pdrop", "embd_pdrop"}) {
    if (f.number_or(key, 0.1, 0, 1) > 0) m.dropout = true;
  }
  read_numerics(f, c.where, m,
                {.norm_eps_key = "layer_norm_epsilon",
                 .norm_eps = 1e-5,
                 .activation_key = "activation_function",
                 .activation = Activation::kGeluTanh});
}

// The defaults in which the families of llama's kind differ.
struct LlamaDefaults {
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  std::int64_t max_positions = 0;
  NumericsDefaults numerics = {};
};

void read_llama_kind(Config& c, ModelSpec& m, const LlamaDefaults& defaults) {
  FieldReader& f = c.fields;
  m.layers = f.integer("num_hidden_layers", 1, kMaxLayers);
  m.hidden = f.integer("hidden_size", 1, kMaxHidden);
  m.ffn = f.integer("intermediate_size", 1, kMaxFfn);
  m.heads = f.integer("num_attention_heads", 1, kMaxHeads);
  const bool kv_as_heads = defaults.kv_heads == 0 || c.is_null("num_key_value_heads");
  m.kv_heads =
      f.integer_or("num_key_value_heads", kv_as_heads ? m.heads : defaults.kv_heads, 1, kMaxHeads);
  if (m.heads % m.kv_heads != 0) {
    f.fail(error_in(c.where, field_error("num_key_value_heads",
                                         "got {}; want a divisor of num_attention_heads ({})",
                                         m.kv_heads, m.heads)));
  }
  if (f.has("head_dim")) {
    m.head_dim = f.integer("head_dim", 1, kMaxHeadDim);
  } else if (defaults.head_dim > 0) {
    m.head_dim = defaults.head_dim;
  } else {
    m.head_dim = divided(c, "hidden_size", m.hidden, "num_attention_heads", m.heads);
  }
  if (m.head_dim % 2 != 0) {
    f.fail(error_in(
        c.where,
        field_error("head_dim", "got {}; want an even number (rotary positions rotate pairs)",
                    m.head_dim)));
  }
  m.vocab = f.integer("vocab_size", 1, kMaxVocab);
  m.max_positions =
      f.integer_or("max_position_embeddings", defaults.max_positions, 1, kMaxPositions);
  m.tied_embeddings = f.boolean_or("tie_word_embeddings", false);
  m.attention_dropout = f.number_or("attention_dropout", 0, 0, 1);
  read_numerics(f, c.where, m, defaults.numerics);
  read_rope(f, c.where, m, defaults.numerics);
}

void read_window(Config& c, ModelSpec& m) {
  m.sliding_window = c.is_null("sliding_window")
                         ? 0
                         : c.fields.integer_or("sliding_window", 4096, 1, kMaxPositions);
}

// Reads the window of Qwen's classes. They use it only if use_sliding_window is on, and only from
// layer max_window_layers on.
void read_switched_window(Config& c, ModelSpec& m) {
  if (!c.fields.boolean_or("use_sliding_window", false)) return;
  read_window(c, m);
  const std::int64_t full = c.fields.integer_or("max_window_layers", 28, 0, kMaxLayers);
  m.full_layers = m.sliding_window > 0 ? std::min(full, m.layers) : 0;
  if (m.full_layers == m.layers) m.sliding_window = m.full_layers = 0;
}

void read_attention_bias(Config& c, ModelSpec& m) {
  m.qkv_bias = m.attention_out_bias = c.fields.boolean_or("attention_bias", false);
}

void read_llama(Config& c, ModelSpec& m) {
  read_llama_kind(c, m, {.max_positions = 2048});
  read_attention_bias(c, m);
  m.mlp_bias = c.fields.boolean_or("mlp_bias", false);
}

void read_mistral(Config& c, ModelSpec& m) {
  read_llama_kind(c, m, {.kv_heads = 8, .max_positions = 131072});
  read_window(c, m);
}

void read_qwen2(Config& c, ModelSpec& m) {
  read_llama_kind(c, m, {.kv_heads = 32, .max_positions = 32768});
  m.qkv_bias = true;  // the whole family has it, so configs have no field for it
  read_switched_window(c, m);
}

void read_qwen3(Config& c, ModelSpec& m) {
  read_llama_kind(c, m, {.kv_heads = 32, .head_dim = 128, .max_positions = 32768});
  read_attention_bias(c, m);
  m.qk_norm = true;
  read_switched_window(c, m);
}

void read_experts(Config& c, ModelSpec& m, const char* count_key, const char* ffn_key) {
  FieldReader& f = c.fields;
  m.moe.experts = f.integer(count_key, 1, kMaxExperts);
  m.moe.experts_per_token = f.integer("num_experts_per_tok", 1, m.moe.experts);
  m.moe.expert_ffn = f.integer(ffn_key, 1, kMaxFfn);
}

void read_mixtral(Config& c, ModelSpec& m) {
  read_llama_kind(c, m,
                  {.kv_heads = 8,
                   .max_positions = 131072,
                   .numerics = {.norm_eps = 1e-5, .rope_theta = 1'000'000}});
  m.sliding_window = c.fields.integer_or("sliding_window", 0, 0, kMaxPositions);
  read_experts(c, m, "num_local_experts", "intermediate_size");
}

void read_qwen3_moe(Config& c, ModelSpec& m) {
  read_llama_kind(c, m, {.kv_heads = 4, .max_positions = 32768});
  read_attention_bias(c, m);
  m.qk_norm = true;
  read_switched_window(c, m);
  // Newer versions of the library save the count under the second name.
  const bool renamed = !c.fields.has("num_experts") && c.fields.has("num_local_experts");
  read_experts(c, m, renamed ? "num_local_experts" : "num_experts", "moe_intermediate_size");
  // Every step-th layer has experts, the last of each step.
  m.moe.layer_step = c.fields.integer_or("decoder_sparse_step", 1, 1, m.layers);
  m.moe.layer_offset = m.moe.layer_step - 1;
  const Json& dense_layers = c.fields.child("mlp_only_layers");
  if (!dense_layers.is_null() && !(dense_layers.is_array() && dense_layers.empty())) {
    c.fields.fail(error_in(
        c.where, field_error("mlp_only_layers",
                             "got {}; want an empty array (other dense layers than those of "
                             "decoder_sparse_step are not supported)",
                             dense_layers.is_array() ? "an array of layers" : "no array")));
  }
}

// The language model of Llama 4. Its chunked attention (attention_chunk_size, in most layers)
// counts as full attention, and its norm of queries and keys has no weights.
void read_llama4_text(Config& c, ModelSpec& m) {
  read_llama_kind(c, m,
                  {.kv_heads = 8,
                   .head_dim = 128,
                   .max_positions = 131072,
                   .numerics = {.norm_eps = 1e-5, .rope_theta = 500'000}});
  read_attention_bias(c, m);
  FieldReader& f = c.fields;
  m.ffn = f.integer_or("intermediate_size_mlp", 16384, 1, kMaxFfn);
  read_experts(c, m, "num_local_experts", "intermediate_size");
  m.moe.shared_experts = 1;
  m.moe.layer_step = f.integer_or("interleave_moe_layer_step", 1, 1, m.layers);
  m.moe.layer_offset = m.moe.layer_step - 1;
  const Json& listed = f.child("moe_layers");
  if (listed.is_null()) return;
  Json expected = Json::array();
  for (std::int64_t layer = 0; layer < m.layers; ++layer) {
    if (m.layer_is_moe(layer)) expected.push_back(layer);
  }
  if (listed != expected) {
    f.fail(error_in(c.where,
                    field_error("moe_layers",
                                "got other layers than those of interleave_moe_layer_step ({}); "
                                "want these, or null",
                                m.moe.layer_step)));
  }
}

void read_deepseek_v3(Config& c, ModelSpec& m) {
  FieldReader& f = c.fields;
  m.layers = f.integer("num_hidden_layers", 1, kMaxLayers);
  m.hidden = f.integer("hidden_size", 1, kMaxHidden);
  m.ffn = f.integer("intermediate_size", 1, kMaxFfn);
  m.heads = f.integer("num_attention_heads", 1, kMaxHeads);
  m.kv_heads = m.heads;  // every head gets its own keys and values from the latent
  m.vocab = f.integer("vocab_size", 1, kMaxVocab);
  m.max_positions = f.integer_or("max_position_embeddings", 4096, 1, kMaxPositions);
  m.tied_embeddings = f.boolean_or("tie_word_embeddings", false);
  m.attention_dropout = f.number_or("attention_dropout", 0, 0, 1);
  read_numerics(f, c.where, m, {});
  read_rope(f, c.where, m, {});
  read_attention_bias(c, m);

  m.mla.enabled = true;
  m.mla.q_lora_rank = f.integer_or("q_lora_rank", c.is_null("q_lora_rank") ? 0 : 1536, 1, kMaxRank);
  m.mla.kv_lora_rank = f.integer("kv_lora_rank", 1, kMaxRank);
  m.mla.qk_nope_head_dim = f.integer("qk_nope_head_dim", 1, kMaxHeadDim);
  m.mla.qk_rope_head_dim = f.integer("qk_rope_head_dim", 1, kMaxHeadDim);
  m.mla.v_head_dim = f.integer("v_head_dim", 1, kMaxHeadDim);
  m.head_dim = m.mla.qk_nope_head_dim + m.mla.qk_rope_head_dim;

  read_experts(c, m, "n_routed_experts", "moe_intermediate_size");
  m.moe.shared_experts =
      f.integer_or("n_shared_experts", c.is_null("n_shared_experts") ? 0 : 1, 0, kMaxSharedExperts);
  m.moe.first_dense_layers = f.integer_or("first_k_dense_replace", 3, 0, m.layers - 1);
  m.moe.layer_step = f.integer_or("moe_layer_freq", 1, 1, m.layers);
  // "noaux_tc" selects experts with a bias per expert, which balances the load without a loss term.
  m.moe.router_correction_bias = f.text_or("topk_method", "noaux_tc") == "noaux_tc";
  m.moe.router_groups =
      f.integer_or("n_group", std::min<std::int64_t>(8, m.moe.experts), 1, m.moe.experts);
  m.moe.router_group_topk = f.integer_or(
      "topk_group", std::min<std::int64_t>(4, m.moe.router_groups), 1, m.moe.router_groups);
  m.moe.router_scale = f.number_or("routed_scaling_factor", 2.5, 0, 1e6);
  // num_nextn_predict_layers is ignored, because the multi-token prediction module is not part of
  // the main model.
}

struct FamilyReader {
  const char* model_type;
  void (*read)(Config&, ModelSpec&);
};

constexpr std::array kFamilyReaders = {
    FamilyReader{"gpt2", read_gpt2},
    FamilyReader{"llama", read_llama},
    FamilyReader{"mistral", read_mistral},
    FamilyReader{"qwen2", read_qwen2},
    FamilyReader{"qwen3", read_qwen3},
    FamilyReader{"mixtral", read_mixtral},
    FamilyReader{"qwen3_moe", read_qwen3_moe},
    FamilyReader{"deepseek_v3", read_deepseek_v3},
    FamilyReader{"llama4_text", read_llama4_text},
};

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  names.reserve(kFamilyReaders.size());
  for (const FamilyReader& family : kFamilyReaders) names.emplace_back(family.model_type);
  return names;
}

// "llama/config.json" -> "llama", "my-model.json" -> "my-model".
std::string name_from_path(const std::string& where) {
  const std::filesystem::path path(where);
  const std::string folder = path.parent_path().filename().string();
  std::string stem = path.stem().string();
  if (stem == "config" && !folder.empty() && folder != "." && folder != "..") stem = folder;
  return stem.empty() ? "unnamed" : stem;
}

Result<ModelSpec> spec_from_json(const Json& json, const std::string& where) {
  Config config{json, where, FieldReader(json, where)};
  FieldReader& fields = config.fields;
  const std::vector<std::string> names = family_names();
  if (json.is_object() && !fields.has("model_type")) {
    return error_in(where, field_error("model_type", "missing; want {}", join_or(names)));
  }
  // A config of text and images has the language model inside. The vision encoder is left out.
  if (json.is_object() && json.contains("text_config") && json.at("text_config").is_object()) {
    COPUS_TRY(ModelSpec text, spec_from_json(json.at("text_config"), where));
    text.name = name_from_path(where);
    return text;
  }
  ModelSpec model;
  model.family = fields.text("model_type");
  COPUS_TRY_VOID(fields.finish());

  const FamilyReader* family = nullptr;
  for (const FamilyReader& each : kFamilyReaders) {
    if (model.family == each.model_type) family = &each;
  }
  if (family == nullptr) {
    const std::vector<std::string> nearest = nearest_names(model.family, names, 1);
    return error_in(where, field_error("model_type", "got \"{}\"; want {}{}",
                                       printable(model.family), join_or(names),
                                       nearest.empty() ? "" : " (nearest: " + nearest[0] + ")"));
  }
  family->read(config, model);

  model.name = fields.text_or("_name_or_path", "");
  if (model.name.empty()) model.name = fields.text_or("name", "");
  if (model.name.empty()) model.name = name_from_path(where);
  model.name = printable(std::move(model.name));

  COPUS_TRY_VOID(fields.finish());
  if (auto valid = model.validate(); !valid) return error_in(where, valid.error());
  return model;
}

Result<ModelSpec> load_model_file(const std::string& given) {
  namespace fs = std::filesystem;
  std::string path = given;
  std::error_code failed;
  if (fs::is_directory(path, failed)) path = (fs::path(path) / "config.json").string();
  if (!fs::exists(given, failed)) {
    return field_error("model",
                       "got {}, and there is no such file; want a catalog name, as llama-3-8b, or "
                       "the path of a Hugging Face config.json",
                       given);
  }
  COPUS_TRY(const Json json, read_json_file(path));
  return spec_from_json(json, path);
}

}  // namespace

Result<ModelSpec> parse_hf_config(std::string_view text, const std::string& where) {
  COPUS_TRY(const Json json, parse_json(text, where));
  return spec_from_json(json, where);
}

Result<ModelSpec> load_model(std::string_view name_or_path) {
  const std::string given(name_or_path);
  if (is_model_path(given)) return load_model_file(given);
  COPUS_TRY(const std::string text, catalog_model_text(given));
  COPUS_TRY(ModelSpec model, parse_hf_config(text, "catalog model " + given));
  model.name = given;
  return model;
}

bool is_model_path(std::string_view name_or_path) {
  if (name_or_path.find('/') != std::string_view::npos || name_or_path.ends_with(".json")) {
    return true;
  }
  std::error_code failed;
  return std::filesystem::exists(name_or_path, failed) && !catalog_model_text(name_or_path);
}

}  // namespace copus
