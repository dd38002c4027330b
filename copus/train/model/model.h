// ModelChunk: the Transformer, written for one device. All communication of tensor parallelism is
// in Partition. The number of heads and hidden units on this rank follows from the weights' shapes.
#pragma once

#include <optional>
#include <vector>

#include "copus/spec/model_spec.h"
#include "copus/train/model/partition.h"
#include "copus/train/state/parameters.h"

namespace copus {

struct Scale {
  Tensor weight, bias;  // RMSNorm has no bias; then it is undefined
  bool watched = false;
};
struct Projection {
  Tensor weight, bias;  // undefined if there is no bias
};

struct LayerWeights {
  Scale attention_norm, mlp_norm;
  Projection qkv, out, up, down;
  Tensor q_norm, k_norm;
};

// Collects the squared gradients of the watched scales for single samples, during the backward
// pass. A sample's own gradient is the sum, over its tokens, of the output's gradient times the
// normalised input. The noise scale is estimated from them (Gray et al. 2024, arXiv 2411.00999).
struct ScaleTap {
  std::int64_t micro_batches = 0;  // it is open for so many first micro-batches of a step
  bool open = false;               // set by the pipeline before each pass
  Tensor squares;  // sum over samples and scales of squared gradients, in double precision
};

// Consecutive layers, with the embedding before them and the head after them if the chunk holds
// these.
class ModelChunk {
 public:
  // `values`: one tensor per chunk_parameters() entry, in that order.
  ModelChunk(const ModelSpec& model, const ChunkSpec& chunk, const std::vector<Tensor>& values,
             const Partition& partition, Recompute recompute, std::int64_t seq_len);

  const ChunkSpec& spec() const { return chunk_; }
  // Sets the tap. If it is open during forward(), the backward pass adds to it. REQUIRES: this rank
  // has whole sequences.
  void set_tap(ScaleTap* tap) { tap_ = tap; }
  // `input`: tokens [batch, length] for the chunk that embeds, activations [batch, part, hidden]
  // for others.
  Tensor forward(const Tensor& input) const;
  // Compute, from forward()'s result, this rank's part of the logits, and the mean loss.
  // REQUIRES: spec().heads.
  Tensor logits(const Tensor& hidden) const;
  Tensor loss(const Tensor& hidden, const Tensor& targets) const;

 private:
  // The residual stream between layers: the sum of outputs, and one output to be added to it.
  struct Stream {
    Tensor sum, next;  // `next` is undefined if there is nothing to add
  };
  Tensor norm(const Tensor& x, const Scale& scale) const;
  // Adds stream.next to stream.sum, and returns the norm of the sum.
  Tensor add_and_norm(Stream& stream, const Scale& scale) const;
  void watch_if_wanted(const Tensor& x, const Tensor& y, const Scale& scale) const;
  void watch(const Tensor& x, const Tensor& y) const;
  Stream layer(Stream stream, const LayerWeights& w) const;
  // `normal`: the output of the layer's norm.
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
