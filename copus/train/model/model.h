// The Transformer, written for one device. What tensor parallelism adds comes in through Partition;
// the number of heads and hidden units here follows from the weights' shapes.
#pragma once

#include <optional>
#include <vector>

#include "copus/spec/model_spec.h"
#include "copus/train/model/partition.h"
#include "copus/train/state/parameters.h"

namespace copus {

struct Scale {
  Tensor weight, bias;  // bias undefined: RMSNorm
  bool watched = false;
};
struct Projection {
  Tensor weight, bias;  // bias undefined: none
};

struct LayerWeights {
  Scale attention_norm, mlp_norm;
  Projection qkv, out, up, down;
  Tensor q_norm, k_norm;
};

// Single samples' gradients of the watched scales, as the backward pass comes by them: a sample's
// own is the sum over its tokens of the output's gradient times the normalised input. For the noise
// scale (Gray et al. 2024, arXiv 2411.00999).
struct ScaleTap {
  std::int64_t micro_batches = 0;  // it is open for so many, the first of a step
  bool open = false;               // the pipeline's to set, pass by pass
  Tensor squares;  // sum over samples and norms of squared gradients, in double precision
};

// Consecutive layers, with the embedding before or the head after them where the chunk holds these.
class ModelChunk {
 public:
  // `values`: one tensor per chunk_parameters() entry, in that order.
  ModelChunk(const ModelSpec& model, const ChunkSpec& chunk, const std::vector<Tensor>& values,
             const Partition& partition, Recompute recompute, std::int64_t seq_len);

  const ChunkSpec& spec() const { return chunk_; }
  // What passes of forward() add to while it is open. REQUIRES: whole sequences lie on this rank.
  void set_tap(ScaleTap* tap) { tap_ = tap; }
  // `input`: tokens [batch, length] for the chunk that embeds, activations [batch, part, hidden]
  // for others.
  Tensor forward(const Tensor& input) const;
  // From forward()'s result: this rank's part of the vocabulary, and the mean loss.
  // REQUIRES: spec().heads.
  Tensor logits(const Tensor& hidden) const;
  Tensor loss(const Tensor& hidden, const Tensor& targets) const;

 private:
  // What flows from layer to layer: their outputs' sum, and one output that is yet to be added.
  struct Stream {
    Tensor sum, next;  // next undefined: nothing is
  };
  Tensor norm(const Tensor& x, const Scale& scale) const;
  // Adds what is to be added, and takes the norm of the sum.
  Tensor add_and_norm(Stream& stream, const Scale& scale) const;
  void watch_if_wanted(const Tensor& x, const Tensor& y, const Scale& scale) const;
  void watch(const Tensor& x, const Tensor& y) const;
  Stream layer(Stream stream, const LayerWeights& w) const;
  // Of a norm's output.
  Tensor attention(const Tensor& normal, const LayerWeights& w) const;
  Tensor mlp(const Tensor& normal, const LayerWeights& w) const;

  ModelSpec model_;
  ChunkSpec chunk_;
  const Partition& partition_;
  ScaleTap* tap_ = nullptr;
  Recompute recompute_;
  std::int64_t seq_len_;
  Tensor tokens_, positions_, head_;
  Scale final_norm_;
  std::vector<LayerWeights> layers_;
  RotaryTable rotary_;
};

}  // namespace copus
