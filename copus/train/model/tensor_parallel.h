// TensorParallel: a Partition that cuts heads, hidden units and vocabulary over a group of ranks.
#pragma once

#include <utility>

#include "copus/train/comm/comm.h"
#include "copus/train/model/partition.h"

namespace copus {

// It cuts as Megatron-LM does (Shoeybi et al. 2019; sequence parallelism: Korthikanti et al. 2022,
// section 4.2).
class TensorParallel final : public Partition {
 public:
  // `vocab`: the size of the whole vocabulary, which shard_of() cuts. `sp`: with sequence
  // parallelism, each rank holds only its part of the sequence between layers.
  TensorParallel(const Comm& group, std::int64_t vocab, bool sp);

  Tensor enter(const Tensor& x) const override;
  Tensor leave(const Tensor& x) const override;
  Tensor embed(const Tensor& table, const Tensor& tokens) const override;
  Tensor loss(const Tensor& logits, const Tensor& targets) const override;
  Tensor real_rows(const Tensor& matrix) const override;
  std::pair<std::int64_t, std::int64_t> positions(std::int64_t seq_len) const override;

 private:
  const Comm& group_;
  std::int64_t vocab_begin_, vocab_length_;
  bool sp_;
};

}  // namespace copus
