#include "copus/train/checkpoint/hf_weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include "copus/base/check.h"
#include "copus/base/text.h"

namespace copus {
namespace {

// A module of a layer or of the model. Stands for its weight and, if it has one, its bias.
struct Module {
  const char* theirs;
  std::vector<const char*> ours;
  bool transposed = false;
};

struct Names {
  const char* prefix;  // of all tensors except the head
  const char* layers;
  std::vector<Module> around;  // before the layers and after them
  std::vector<Module> inside;  // of a layer
};

const Names& gpt2_names() {
  static const Names names = {
      .prefix = "transformer.",
      .layers = "h.",
      .around = {{"wte", {"embed.tokens"}}, {"wpe", {"embed.positions"}}, {"ln_f", {"final_norm"}}},
      .inside = {{"ln_1", {"attention_norm"}},
                 {"attn.c_attn", {"attention.q", "attention.k", "attention.v"}, true},
                 {"attn.c_proj", {"attention.out"}, true},
                 {"ln_2", {"mlp_norm"}},
                 {"mlp.c_fc", {"mlp.up"}, true},
                 {"mlp.c_proj", {"mlp.down"}, true}}};
  return names;
}

const Names& llama_names() {
  static const Names names = {
      .prefix = "model.",
      .layers = "layers.",
      .around = {{"embed_tokens", {"embed.tokens"}}, {"norm", {"final_norm"}}},
      .inside = {{"input_layernorm", {"attention_norm"}},
                 {"self_attn.q_proj", {"attention.q"}},
                 {"self_attn.k_proj", {"attention.k"}},
                 {"self_attn.v_proj", {"attention.v"}},
                 {"self_attn.q_norm", {"attention.q_norm"}},
                 {"self_attn.k_norm", {"attention.k_norm"}},
                 {"self_attn.o_proj", {"attention.out"}},
                 {"post_attention_layernorm", {"mlp_norm"}},
                 {"mlp.gate_proj", {"mlp.gate"}},
                 {"mlp.up_proj", {"mlp.up"}},
                 {"mlp.down_proj", {"mlp.down"}}}};
  return names;
}

const Names& names_of(const ModelSpec& model) {
  return model.family == "gpt2" ? gpt2_names() : llama_names();
}

constexpr const char* kHead = "lm_head";

Result<void> check_family(const ModelSpec& model) {
  static const std::vector<std::string> kFamilies = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};
  if (std::find(kFamilies.begin(), kFamilies.end(), model.family) == kFamilies.end()) {
    return field_error("model",
                       "got {}, of family {}; want {} (the families that the engine trains)",
                       model.name, model.family, join_or(kFamilies));
  }
  return {};
}

// Builds the list of Hugging Face tensors. Takes each of our tensors out of `left_` when it is
// used: what stays there at the end has no Hugging Face name.
class Collector {
 public:
  explicit Collector(const ModelSpec& model) {
    for (TensorSpec& tensor : model_tensors(model)) {
      std::string name = tensor.name;
      left_.emplace(std::move(name), std::move(tensor));
    }
  }

  void module(const std::string& theirs, const std::string& at, const Module& module) {
    for (const char* field : {".weight", ".bias"}) {
      HfTensor tensor{.name = theirs + field, .shape = {}, .parts = {}};
      for (const char* ours : module.ours) {
        const auto found = left_.find(at + ours + field);
        if (found == left_.end()) continue;
        tensor.parts.push_back(std::move(found->second));
        left_.erase(found);
      }
      if (tensor.parts.empty()) continue;  // no bias, no learned positions, no norms of heads
      COPUS_CHECK(tensor.parts.size() == module.ours.size());
      tensor.shape = tensor.parts[0].shape;
      for (std::size_t i = 1; i < tensor.parts.size(); ++i) {
        tensor.shape[0] += tensor.parts[i].shape[0];
      }
      if (module.transposed && tensor.shape.size() == 2) {
        tensor.transposed = true;
        std::swap(tensor.shape[0], tensor.shape[1]);
      }
      list_.push_back(std::move(tensor));
    }
  }

  std::vector<HfTensor> take() {
    COPUS_CHECK(left_.empty());
    return std::move(list_);
  }

 private:
  std::map<std::string, TensorSpec> left_;
  std::vector<HfTensor> list_;
};

}  // namespace

Result<std::vector<HfTensor>> hf_tensors(const ModelSpec& model) {
  COPUS_TRY_VOID(check_family(model));
  const Names& names = names_of(model);
  const std::string prefix = names.prefix;
  const std::span<const Module> around = names.around;
  Collector collect(model);
  for (const Module& module : around.first(around.size() - 1)) {
    collect.module(prefix + module.theirs, "", module);
  }
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string at = fmt::format("{}.", layer);
    const std::string theirs = fmt::format("{}{}{}", prefix, names.layers, at);
    const std::string ours = "layers." + at;
    for (const Module& module : names.inside) {
      collect.module(theirs + module.theirs, ours, module);
    }
  }
  collect.module(prefix + around.back().theirs, "", around.back());
  collect.module(kHead, "", {kHead, {"head"}});
  return collect.take();
}

std::string with_model_prefix(const ModelSpec& model, const std::string& name) {
  const Names& names = names_of(model);
  std::vector<std::string> starts = {names.layers};
  for (const Module& module : names.around) starts.push_back(std::string(module.theirs) + ".");
  const bool lacks_it = std::any_of(starts.begin(), starts.end(), [&](const std::string& start) {
    return name.starts_with(start);
  });
  return lacks_it ? names.prefix + name : name;
}

bool is_no_weight(const ModelSpec& model, std::string_view name) {
  if (name == "lm_head.weight") return model.tied_embeddings;
  if (model.family == "gpt2")
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  return name.ends_with(".rotary_emb.inv_freq");
}

void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  constexpr std::int64_t kTile = 32;  // a tile of `from` and one of `to` fit the first-level cache
  for (std::int64_t top = 0; top < rows; top += kTile) {
    for (std::int64_t left = 0; left < columns; left += kTile) {
      for (std::int64_t row = top; row < std::min(rows, top + kTile); ++row) {
        for (std::int64_t column = left; column < std::min(columns, left + kTile); ++column) {
          to[column * rows + row] = from[row * columns + column];
        }
      }
    }
  }
}

}  // namespace copus
