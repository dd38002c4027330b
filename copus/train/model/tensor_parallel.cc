// The communication of tensor parallelism, as pairs of operators: the forward of one is the
// backward of the other.
#include "copus/train/model/tensor_parallel.h"

#include "copus/train/model/cuda/ops.h"
#include "copus/train/state/parameters.h"

namespace copus {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// A graph keeps the address of the group, since GroupCache keeps every group longer than any graph.
c10::IValue hold(const Comm& group) { return reinterpret_cast<std::int64_t>(&group); }
const Comm& held(AutogradContext* context) {
  return *reinterpret_cast<const Comm*>(context->saved_data["group"].toInt());
}

Tensor sum_over(const Comm& group, const Tensor& x) {
  Tensor sum = x.contiguous().clone();
  group.all_reduce(sum);
  return sum;
}

// Gathers [batch, length/n, hidden] of each rank to [batch, length, hidden] on all ranks.
Tensor gather_sequence(const Comm& group, const Tensor& x) {
  const std::int64_t n = group.size();
  const Tensor mine = x.contiguous();
  Tensor parts = at::empty({n, x.size(0), x.size(1), x.size(2)}, x.options());
  group.all_gather(parts, mine);
  return parts.transpose(0, 1).reshape({x.size(0), n * x.size(1), x.size(2)});
}

// Sums [batch, length, hidden] over the ranks. Each gets its part [batch, length/n, hidden].
Tensor scatter_sequence_sum(const Comm& group, const Tensor& x) {
  const std::int64_t n = group.size();
  const Tensor parts =
      x.reshape({x.size(0), n, x.size(1) / n, x.size(2)}).transpose(0, 1).contiguous();
  Tensor mine = at::empty({x.size(0), x.size(1) / n, x.size(2)}, x.options());
  group.reduce_scatter(mine, parts);
  return mine;
}

// Forward: returns x. Backward: sums over the ranks.
struct CopyToRanks : Function<CopyToRanks> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Comm* group) {
    context->saved_data["group"] = hold(*group);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {sum_over(held(context), grads[0]), Tensor()};
  }
};

// Forward: sums over the ranks. Backward: returns the gradient as it is.
struct SumOverRanks : Function<SumOverRanks> {
  static Tensor forward(AutogradContext*, const Tensor& x, const Comm* group) {
    return sum_over(*group, x);
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0], Tensor()};
  }
};

struct GatherSequence : Function<GatherSequence> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Comm* group) {
    context->saved_data["group"] = hold(*group);
    return gather_sequence(*group, x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {scatter_sequence_sum(held(context), grads[0]), Tensor()};
  }
};

struct ScatterSequenceSum : Function<ScatterSequenceSum> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Comm* group) {
    context->saved_data["group"] = hold(*group);
    return scatter_sequence_sum(*group, x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {gather_sequence(held(context), grads[0]), Tensor()};
  }
};

// Cross-entropy of logits whose vocabulary is cut: no rank ever holds a whole row. forward() keeps
// one large tensor, the softmax, and backward() overwrites it with the gradient.
struct VocabParallelCrossEntropy : Function<VocabParallelCrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& targets,
                        const Comm* group, std::int64_t begin) {
    const std::int64_t width = logits.size(1);
    Tensor probabilities = logits.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    Tensor largest = probabilities.amax(1);
    group->all_reduce_max(largest);
    probabilities.sub_(largest.unsqueeze(1));
    const Tensor here = targets.ge(begin).logical_and_(targets.lt(begin + width));
    const Tensor column = targets.sub(begin).clamp_(0, width - 1);
    // Sums the exponentials of each row and the targets' logits over the ranks, in one message.
    Tensor sums = at::zeros({2, logits.size(0)}, probabilities.options());
    sums[1].copy_(probabilities.gather(1, column.unsqueeze(1)).squeeze(1).mul_(here));
    probabilities.exp_();
    sums[0].copy_(probabilities.sum(1));
    group->all_reduce(sums);
    probabilities.div_(sums[0].unsqueeze(1));
    context->save_for_backward({probabilities, here, column});
    context->saved_data["dtype"] = static_cast<std::int64_t>(logits.scalar_type());
    return sums[0].log().sub_(sums[1]).mean();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    Tensor gradient = saved[0];
    gradient.scatter_add_(1, saved[2].unsqueeze(1), saved[1].to(at::kFloat).neg_().unsqueeze(1));
    gradient.mul_(grads[0] / static_cast<double>(gradient.size(0)));
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    return {gradient.to(dtype), Tensor(), Tensor(), Tensor()};
  }
};

// The same with the GPU's kernels: backward() overwrites the logits with their gradient.
struct VocabParallelCrossEntropyOnGpu : Function<VocabParallelCrossEntropyOnGpu> {
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& targets,
                        const Comm* group, std::int64_t begin) {
    const Tensor from = logits.contiguous(), labels = targets.contiguous();
    const cuda::RowStatistics rows = cuda::row_statistics(from, labels, begin);
    const Tensor largest = rows.largest.clone();
    group->all_reduce_max(largest);
    const Tensor sums = at::stack({rows.sum * (rows.largest - largest).exp_(), rows.target});
    group->all_reduce(sums);
    const Tensor log_sums = sums[0].log().add_(largest);
    context->save_for_backward({from, labels, log_sums});
    context->saved_data["begin"] = begin;
    return (log_sums - sums[1]).mean();
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    cuda::to_loss_gradient(saved[0], saved[1], context->saved_data["begin"].toInt(), saved[2],
                           grads[0]);
    return {saved[0], Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

TensorParallel::TensorParallel(const Comm& group, std::int64_t vocab, bool sp)
    : group_(group), sp_(sp) {
  TensorSpec table;
  table.shape = {vocab, 1};
  table.cut = Cut::kRows;
  const Shard shard = shard_of(table, group.size(), group.rank());
  vocab_begin_ = shard.begin;
  vocab_length_ = shard.length;
}

Tensor TensorParallel::enter(const Tensor& x) const {
  return sp_ ? GatherSequence::apply(x, &group_) : CopyToRanks::apply(x, &group_);
}

Tensor TensorParallel::leave(const Tensor& x) const {
  return sp_ ? ScatterSequenceSum::apply(x, &group_) : SumOverRanks::apply(x, &group_);
}

Tensor TensorParallel::embed(const Tensor& table, const Tensor& tokens) const {
  const Tensor row = tokens.sub(vocab_begin_);
  const Tensor elsewhere = row.lt(0).logical_or_(row.ge(vocab_length_));
  const Tensor rows = at::embedding(table, row.masked_fill(elsewhere, 0));
  return leave(rows.masked_fill(elsewhere.unsqueeze(-1), 0));
}

Tensor TensorParallel::loss(const Tensor& logits, const Tensor& targets) const {
  if (cuda::takes(logits)) {
    return VocabParallelCrossEntropyOnGpu::apply(logits, targets, &group_, vocab_begin_);
  }
  return VocabParallelCrossEntropy::apply(logits, targets, &group_, vocab_begin_);
}

Tensor TensorParallel::real_rows(const Tensor& matrix) const {
  return matrix.size(0) == vocab_length_ ? matrix : matrix.narrow(0, 0, vocab_length_);
}

std::pair<std::int64_t, std::int64_t> TensorParallel::positions(std::int64_t seq_len) const {
  if (!sp_) return {0, seq_len};
  const std::int64_t part = seq_len / group_.size();
  return {group_.rank() * part, part};
}

}  // namespace copus
