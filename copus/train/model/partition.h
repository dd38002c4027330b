// Partition: the interface through which the model calls tensor parallelism. The base class is for
// one device, where activations stay as they are. TensorParallel (tensor_parallel.h) is for a group
// of ranks.
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

  // Called before a projection whose rows are cut.
  virtual Tensor enter(const Tensor& x) const { return x; }
  // Called after a projection whose columns are cut. Returns the sum of the ranks' parts.
  virtual Tensor leave(const Tensor& x) const { return x; }
  // Returns the embedding of the tokens, from a table whose rows are cut. The result is this rank's
  // part of the activations between layers.
  virtual Tensor embed(const Tensor& table, const Tensor& tokens) const {
    return embed_rows(table, tokens);
  }
  // Returns the mean loss over all tokens. `logits` is this rank's part: [tokens, part of the
  // vocabulary].
  virtual Tensor loss(const Tensor& logits, const Tensor& targets) const {
    return cross_entropy(logits, targets);
  }
  // Returns the rows of this rank's part of a vocabulary matrix without the padding.
  virtual Tensor real_rows(const Tensor& matrix) const { return matrix; }
  // Returns the part of a sequence that this rank holds between layers: first position and length.
  virtual std::pair<std::int64_t, std::int64_t> positions(std::int64_t seq_len) const {
    return {0, seq_len};
  }
};

}  // namespace copus
