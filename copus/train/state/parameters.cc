#include "copus/train/state/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numbers>
#include <numeric>

#include "copus/base/check.h"
#include "copus/base/hash.h"

namespace copus {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Lists a chunk's parameters from the shape of the model.
class Lister {
 public:
  explicit Lister(const ModelSpec& model) : m_(model) {}

  void embedding() {
    list_.push_back({"embed.tokens",
                     {matrix("embed.tokens.weight", m_.vocab, m_.hidden, Cut::kRows, m_.init_std)},
                     true});
    if (m_.positions == Positions::kLearned) {
      TensorSpec positions =
          matrix("embed.positions.weight", m_.max_positions, m_.hidden, Cut::kNone, m_.init_std);
      positions.copies = Copies::kPartialUnderSp;
      list_.push_back({"embed.positions", {positions}, true});
    }
  }

  void layer(std::int64_t index) {
    const std::string at = "layers." + std::to_string(index) + ".";
    norm(at + "attention_norm");
    attention(at + "attention.");
    norm(at + "mlp_norm");
    mlp(at + "mlp.");
  }

  void head(bool embeds) {
    norm("final_norm");
    if (m_.tied_embeddings) {
      if (!embeds) {
        list_.push_back(
            {"embed.tokens",
             {matrix("embed.tokens.weight", m_.vocab, m_.hidden, Cut::kRows, m_.init_std)},
             true});
      }
      return;
    }
    list_.push_back(
        {"head", {matrix("head.weight", m_.vocab, m_.hidden, Cut::kRows, m_.init_std)}, true});
  }

  std::vector<ParameterSpec> take() { return std::move(list_); }

 private:
  static TensorSpec matrix(std::string name, std::int64_t rows, std::int64_t columns, Cut cut,
                           double std) {
    return {.name = std::move(name), .shape = {rows, columns}, .cut = cut, .init_std = std};
  }
  static TensorSpec vector(std::string name, std::int64_t size, Cut cut, double value = 0) {
    return {.name = std::move(name), .shape = {size}, .cut = cut, .init_value = value};
  }

  void norm(const std::string& name) {
    TensorSpec weight = vector(name + ".weight", m_.hidden, Cut::kNone, 1);
    weight.copies = Copies::kPartialUnderSp;
    list_.push_back({name + ".weight", {weight}});
    if (m_.norm == Norm::kLayerNorm) {
      TensorSpec bias = vector(name + ".bias", m_.hidden, Cut::kNone);
      bias.copies = Copies::kPartialUnderSp;
      list_.push_back({name + ".bias", {bias}});
    }
  }

  void row_parallel_bias(const std::string& name) {
    TensorSpec bias = vector(name, m_.hidden, Cut::kNone);
    bias.copies = Copies::kPartialUnderSp;
    list_.push_back({name, {bias}});
  }

  // The initial weights of projections back to the residual stream are smaller in deeper models
  // (Radford et al. 2019, section 2.3).
  double residual_std() const {
    return m_.init_std / std::sqrt(2.0 * static_cast<double>(m_.layers));
  }

  void attention(const std::string& at) {
    const std::int64_t q = m_.heads * m_.head_dim;
    const std::int64_t kv = m_.kv_heads * m_.head_dim;
    ParameterSpec weight{at + "qkv.weight", {}, true};
    ParameterSpec bias{at + "qkv.bias", {}};
    for (const char* part : {"q", "k", "v"}) {
      const bool is_q = *part == 'q';
      TensorSpec w =
          matrix(at + part + ".weight", is_q ? q : kv, m_.hidden, Cut::kRows, m_.init_std);
      TensorSpec b = vector(at + part + ".bias", is_q ? q : kv, Cut::kRows);
      if (!is_q) w.max_parts = b.max_parts = m_.kv_heads;
      weight.tensors.push_back(w);
      bias.tensors.push_back(b);
    }
    list_.push_back(weight);
    if (m_.qkv_bias) list_.push_back(bias);
    if (m_.qk_norm) {
      for (const char* part : {"q_norm.weight", "k_norm.weight"}) {
        TensorSpec scale = vector(at + part, m_.head_dim, Cut::kNone, 1);
        scale.copies = Copies::kPartial;  // each rank has seen its own heads only
        list_.push_back({at + part, {scale}});
      }
    }
    list_.push_back({at + "out.weight",
                     {matrix(at + "out.weight", m_.hidden, q, Cut::kColumns, residual_std())},
                     true});
    if (m_.attention_out_bias) row_parallel_bias(at + "out.bias");
  }

  void mlp(const std::string& at) {
    ParameterSpec weight{at + "up.weight", {}, true};
    ParameterSpec bias{at + "up.bias", {}};
    for (const char* part : {"gate", "up"}) {
      if (*part == 'g' && !m_.gated_mlp) continue;
      weight.tensors.push_back(
          matrix(at + part + ".weight", m_.ffn, m_.hidden, Cut::kRows, m_.init_std));
      bias.tensors.push_back(vector(at + part + ".bias", m_.ffn, Cut::kRows));
    }
    list_.push_back(weight);
    if (m_.mlp_bias) list_.push_back(bias);
    list_.push_back({at + "down.weight",
                     {matrix(at + "down.weight", m_.hidden, m_.ffn, Cut::kColumns, residual_std())},
                     true});
    if (m_.mlp_bias) row_parallel_bias(at + "down.bias");
  }

  const ModelSpec& m_;
  std::vector<ParameterSpec> list_;
};

}  // namespace

bool is_watched_scale(const ModelSpec& model, const std::string& name) {
  constexpr std::int64_t kLayers = 4;  // approximately
  if (name == "final_norm.weight") return true;
  const std::int64_t stride = std::max<std::int64_t>(1, model.layers / kLayers);
  for (std::int64_t layer = 0; layer < model.layers; layer += stride) {
    if (name == fmt::format("layers.{}.attention_norm.weight", layer)) return true;
  }
  return false;
}

Shard shard_of(const TensorSpec& tensor, std::int64_t tp, std::int64_t rank) {
  if (tensor.cut == Cut::kNone) {
    const std::int64_t whole = tensor.shape[0];
    return {.length = whole, .padded = whole, .copies = tp, .copy = rank};
  }
  const std::int64_t size = tensor.shape[tensor.cut == Cut::kRows ? 0 : 1];
  const std::int64_t parts = tensor.max_parts > 0 ? std::min(tp, tensor.max_parts) : tp;
  const std::int64_t copies = tp / parts;
  const std::int64_t padded = ceil_div(size, parts);
  const std::int64_t begin = std::min(size, rank / copies * padded);
  return {.begin = begin,
          .length = std::min(padded, size - begin),
          .padded = padded,
          .copies = copies,
          .copy = rank % copies};
}

std::vector<std::int64_t> local_shape(const TensorSpec& tensor, const Shard& shard) {
  std::vector<std::int64_t> shape = tensor.shape;
  shape[tensor.cut == Cut::kColumns ? 1 : 0] = shard.padded;
  return shape;
}

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

ChunkSpec chunk_spec(const ModelSpec& model, const ParallelPlan& plan, std::int64_t index) {
  ChunkSpec chunk;
  chunk.index = index;
  for (std::int64_t i = 0; i < index; ++i) chunk.first_layer += plan.chunk_layers(i, model);
  chunk.layers = plan.chunk_layers(index, model);
  chunk.embeds = index == 0;
  chunk.heads = index == plan.pp * plan.vp - 1;
  return chunk;
}

std::vector<ParameterSpec> chunk_parameters(const ModelSpec& model, const ChunkSpec& chunk) {
  Lister lister(model);
  if (chunk.embeds) lister.embedding();
  for (std::int64_t i = 0; i < chunk.layers; ++i) lister.layer(chunk.first_layer + i);
  if (chunk.heads) lister.head(chunk.embeds);
  return lister.take();
}

std::vector<TensorSpec> model_tensors(const ModelSpec& model) {
  std::vector<TensorSpec> tensors;
  for (ParameterSpec& parameter : chunk_parameters(model, chunk_spec(model, {}, 0))) {
    std::move(parameter.tensors.begin(), parameter.tensors.end(), std::back_inserter(tensors));
  }
  return tensors;
}

void initial_values(const TensorSpec& tensor, std::uint64_t seed, std::int64_t begin,
                    std::int64_t count, float* out) {
  if (tensor.init_std == 0) {
    std::fill_n(out, count, static_cast<float>(tensor.init_value));
    return;
  }
  // Box-Muller on two numbers hashed from the index of the pair.
  const std::uint64_t key = mix64(seed) ^ hash_of(tensor.name);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto element = static_cast<std::uint64_t>(begin + i);
    const std::uint64_t pair = element / 2 * 2;
    const double u = (static_cast<double>(mix64(key ^ mix64(pair)) >> 11) + 1.0) * 0x1.0p-53;
    const double v = static_cast<double>(mix64(key ^ mix64(pair + 1)) >> 11) * 0x1.0p-53;
    const double radius = std::sqrt(-2.0 * std::log(u));
    const double angle = 2.0 * std::numbers::pi * v;
    const double normal = radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
    out[i] = static_cast<float>(tensor.init_std * normal);
  }
}

}  // namespace copus
