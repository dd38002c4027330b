// Partition: what tensor parallelism does to a layer's activations, seen from the model. The base
// class is one device: nothing. TensorParallel (tensor_parallel.h) cuts over a group.
#pragma once

#include <utility>

#include "copus/train/model/ops.h"

namespace copus {

class Partition {
 public:
  Partition() = default;
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;
  virtual ~Partition() = default;

  // Before a projection whose rows are cut.
  virtual Tensor enter(const Tensor& x) const { return x; }
  // After a projection whose columns are cut: the sum of the parts.
  virtual Tensor leave(const Tensor& x) const { return x; }
  // Rows of a table whose rows are cut, as they lie between layers.
  virtual Tensor embed(const Tensor& table, const Tensor& tokens) const {
    return embed_rows(table, tokens);
  }
  // Mean loss over all tokens, from this rank's part of the logits: [tokens, part of vocabulary].
  virtual Tensor loss(const Tensor& logits, const Tensor& targets) const {
    return cross_entropy(logits, targets);
  }
  // The real rows of this rank's part of a vocabulary matrix (the rest is padding).
  virtual Tensor real_rows(const Tensor& matrix) const { return matrix; }
  // Which part of a sequence lies here between layers: first position and length.
  virtual std::pair<std::int64_t, std::int64_t> positions(std::int64_t seq_len) const {
    return {0, seq_len};
  }
};

}  // namespace copus
