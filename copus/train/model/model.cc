#include "copus/train/model/model.h"

#include <map>
#include <utility>

#include "copus/base/check.h"

namespace copus {
namespace {

// Returns x W^T + bias.
Tensor project(const Tensor& x, const Projection& p) { return linear_layer(x, p.weight, p.bias); }
// The same for a weight whose columns are cut: sums x W^T over the ranks, then adds the bias once.

Tensor project_and_leave(const Tensor& x, const Projection& p, const Partition& partition) {
  Tensor y = partition.leave(linear_layer(x, p.weight));
  return p.bias.defined() ? y + p.bias : y;
}

}  // namespace

ModelChunk::ModelChunk(const ModelSpec& model, const ChunkSpec& chunk,
                       const std::vector<Tensor>& values, const Partition& partition,
                       Recompute recompute, std::int64_t seq_len)
    : model_(model),
      chunk_(chunk),
      partition_(partition),
      recompute_(recompute),
      seq_len_(seq_len) {
  const std::vector<ParameterSpec> specs = chunk_parameters(model, chunk);
  COPUS_CHECK(specs.size() == values.size());
  std::map<std::string, Tensor> by_name;
  for (std::size_t i = 0; i < specs.size(); ++i) by_name[specs[i].name] = values[i];
  const auto get = [&](const std::string& name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? Tensor() : found->second;
  };

  tokens_ = get("embed.tokens");
  positions_ = get("embed.positions");
  head_ = model.tied_embeddings ? tokens_ : get("head");
  final_norm_ = {get("final_norm.weight"), get("final_norm.bias"), /*watched=*/true};
  for (std::int64_t i = 0; i < chunk.layers; ++i) {
    const std::string at = "layers." + std::to_string(chunk.first_layer + i) + ".";
    const auto projection = [&](const std::string& name) {
      return Projection{get(at + name + ".weight"), get(at + name + ".bias")};
    };
    const auto scale = [&](const std::string& name) {
      return Scale{get(at + name + ".weight"), get(at + name + ".bias"),
                   is_watched_scale(model, at + name + ".weight")};
    };
    layers_.push_back({.attention_norm = scale("attention_norm"),
                       .mlp_norm = scale("mlp_norm"),
                       .qkv = projection("attention.qkv"),
                       .out = projection("attention.out"),
                       .up = projection("mlp.up"),
                       .down = projection("mlp.down"),
                       .q_norm = get(at + "attention.q_norm.weight"),
                       .k_norm = get(at + "attention.k_norm.weight")});
  }
  if (model.positions == Positions::kRope && !layers_.empty()) {
    rotary_ = rotary_table(model, seq_len, layers_[0].qkv.weight.device());
  }
}

Tensor ModelChunk::norm(const Tensor& x, const Scale& scale) const {
  const Tensor y = model_.norm == Norm::kRmsNorm
                       ? rms_norm(x, scale.weight, model_.norm_eps)
                       : at::layer_norm(x, {x.size(-1)}, scale.weight, scale.bias, model_.norm_eps);
  watch_if_wanted(x, y, scale);
  return y;
}

Tensor ModelChunk::add_and_norm(Stream& stream, const Scale& scale) const {
  const Tensor next = std::exchange(stream.next, Tensor());
  if (!next.defined()) return norm(stream.sum, scale);
  if (model_.norm != Norm::kRmsNorm) {
    stream.sum = stream.sum + next;
    return norm(stream.sum, scale);
  }
  const SumAndNorm both = add_rms_norm(stream.sum, next, scale.weight, model_.norm_eps);
  stream.sum = both.sum;
  watch_if_wanted(both.sum, both.norm, scale);
  return both.norm;
}

void ModelChunk::watch_if_wanted(const Tensor& x, const Tensor& y, const Scale& scale) const {
  if (scale.watched && tap_ != nullptr && tap_->open && y.requires_grad()) watch(x, y);
}

void ModelChunk::watch(const Tensor& x, const Tensor& y) const {
  y.register_hook([tap = tap_, input = x.detach(), centred = model_.norm != Norm::kRmsNorm,
                   eps = model_.norm_eps](const Tensor& dy) {
    const at::NoGradGuard no_grad;
    Tensor normal = input.to(at::kFloat);
    if (centred) normal = normal - normal.mean(-1, /*keepdim=*/true);
    const double width = static_cast<double>(normal.size(-1));
    const Tensor length = at::norm(normal, 2, {-1}, /*keepdim=*/false);
    const Tensor scale = length.square_().div_(width).add_(eps).rsqrt_();  // one per token
    const Tensor per_sample = at::bmm(scale.unsqueeze(1), normal * dy);
    tap->squares.add_(per_sample.square().sum(at::kDouble));
  });
}

Tensor ModelChunk::attention(const Tensor& normal, const LayerWeights& w) const {
  const Tensor qkv = project(partition_.enter(normal), w.qkv);
  const std::int64_t batch = qkv.size(0), length = qkv.size(1), d = model_.head_dim;
  const std::int64_t all = qkv.size(2) / d;
  // The ratio of heads to key heads is that of the model, unless several ranks share a key head.
  // Then this rank has one key head.
  const std::int64_t group = model_.heads / model_.kv_heads;
  const std::int64_t kv = std::max<std::int64_t>(1, all / (group + 2));
  const std::int64_t heads = all - 2 * kv;
  const auto attend = [&](const TensorFunction& f, const std::vector<Tensor>& inputs) {
    return recompute_ == Recompute::kSelective ? recomputed(f, inputs) : f(inputs);
  };
  Tensor mixed;
  if (w.q_norm.defined()) {
    const Tensor by_head = qkv.view({batch, length, all, d});
    Tensor q = rms_norm(by_head.narrow(2, 0, heads), w.q_norm, model_.norm_eps);
    Tensor k = rms_norm(by_head.narrow(2, heads, kv), w.k_norm, model_.norm_eps);
    if (rotary_.cosines.defined()) {
      q = rotate(q, rotary_);
      k = rotate(k, rotary_);
    }
    mixed =
        attend([](const std::vector<Tensor>& in) { return causal_attention(in[0], in[1], in[2]); },
               {q, k, by_head.narrow(2, heads + kv, kv)});
  } else {
    mixed = attend(
        [this, heads, kv](const std::vector<Tensor>& in) {
          return self_attention(in[0], heads, kv, rotary_);
        },
        {qkv});
  }
  return project_and_leave(mixed, w.out, partition_);
}

Tensor ModelChunk::mlp(const Tensor& normal, const LayerWeights& w) const {
  const Tensor up = project(partition_.enter(normal), w.up);
  const Tensor hidden =
      model_.gated_mlp ? gated(up, model_.activation) : activate(up, model_.activation);
  return project_and_leave(hidden, w.down, partition_);
}

ModelChunk::Stream ModelChunk::layer(Stream stream, const LayerWeights& w) const {
  stream.next = attention(add_and_norm(stream, w.attention_norm), w);
  stream.next = mlp(add_and_norm(stream, w.mlp_norm), w);
  return stream;
}

Tensor ModelChunk::forward(const Tensor& input) const {
  Tensor x = input;
  if (chunk_.embeds) {
    x = partition_.embed(tokens_, input);
    if (positions_.defined()) {
      const auto [first, count] = partition_.positions(seq_len_);
      x = x + positions_.narrow(0, first, count);
    }
  }
  if (recompute_ == Recompute::kFull) {  // of each layer, only its input is kept
    for (const LayerWeights& w : layers_) {
      x = recomputed(
          [this, &w](const std::vector<Tensor>& in) {
            const Stream stream = layer({in[0], {}}, w);
            return stream.sum + stream.next;
          },
          {x});
    }
    return x;
  }
  Stream stream{x, {}};
  for (const LayerWeights& w : layers_) stream = layer(std::move(stream), w);
  return stream.next.defined() ? stream.sum + stream.next : stream.sum;
}

Tensor ModelChunk::logits(const Tensor& hidden) const {
  COPUS_CHECK(chunk_.heads);
  const Tensor x = partition_.enter(norm(hidden, final_norm_));
  return linear_layer(x, partition_.real_rows(head_));
}

Tensor ModelChunk::loss(const Tensor& hidden, const Tensor& targets) const {
  return partition_.loss(logits(hidden).flatten(0, 1), targets.flatten());
}

}  // namespace copus
