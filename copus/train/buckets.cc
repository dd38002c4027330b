#include "copus/train/buckets.h"

#include <algorithm>
#include <numeric>

#include "copus/train/adamw.h"

namespace copus {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// The rank's part of a tensor as it starts. Only that part is ever computed.
Tensor initial_shard(const TensorSpec& spec, const Shard& shard, std::uint64_t seed) {
  const Tensor part = at::zeros(local_shape(spec, shard), at::kFloat);
  float* out = part.data_ptr<float>();
  const std::int64_t columns = spec.shape.size() > 1 ? spec.shape[1] : 1;
  if (spec.cut != Cut::kColumns) {
    const std::int64_t first = shard.begin * columns;
    at::parallel_for(0, shard.length * columns, 1 << 14, [&](std::int64_t b, std::int64_t e) {
      initial_values(spec, seed, first + b, e - b, out + b);
    });
    return part;
  }
  at::parallel_for(0, spec.shape[0], 16, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t row = b; row < e; ++row) {
      initial_values(spec, seed, row * columns + shard.begin, shard.length,
                     out + row * shard.padded);
    }
  });
  return part;
}

// What a parameter's tensors look like stacked.
std::vector<std::int64_t> stacked_shape(const ParameterSpec& parameter, std::int64_t tp,
                                        std::int64_t rank) {
  std::vector<std::int64_t> shape;
  for (const TensorSpec& tensor : parameter.tensors) {
    const std::vector<std::int64_t> part = local_shape(tensor, shard_of(tensor, tp, rank));
    if (shape.empty()) {
      shape = part;
    } else {
      shape[0] += part[0];
    }
  }
  return shape;
}

}  // namespace

// Runs after a leaf's gradient has been accumulated.
struct ChunkParameters::Watch : torch::autograd::FunctionPostHook {
  Watch(ChunkParameters* parameters, std::size_t leaf) : owner(parameters), index(leaf) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    owner->gradient_ready(index);
    return outputs;
  }
  ChunkParameters* owner;
  std::size_t index;
};

ChunkParameters::ChunkParameters(const ModelSpec& model, const ChunkSpec& chunk, const Mesh& mesh,
                                 const BucketOptions& options)
    : mesh_(mesh) {
  const std::vector<ParameterSpec> specs = chunk_parameters(model, chunk);
  const std::int64_t tp = mesh.plan.tp;
  const std::int64_t dp = mesh.plan.dp;
  const bool share_ends = mesh.tied != nullptr;

  // The backward pass finishes the last parameters first.
  leaf_bucket_.resize(specs.size());
  std::vector<std::int64_t> leaf_offset(specs.size());
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t open[2] = {kNone, kNone};  // by decay
  std::vector<std::size_t> order;
  for (std::size_t i = specs.size(); i-- > 0;) order.push_back(i);
  const auto is_tied = [&](std::size_t i) { return share_ends && specs[i].name == "embed.tokens"; };
  // The shared embedding comes last: it waits for the other end of the pipeline, others need not.
  std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return !is_tied(i); });
  for (const std::size_t i : order) {
    const ParameterSpec& parameter = specs[i];
    const bool tied = is_tied(i);
    std::size_t slot = open[parameter.decay ? 1 : 0];
    if (tied || slot == kNone || buckets_[slot].size >= options.bucket_elements) {
      slot = buckets_.size();
      buckets_.emplace_back();
      buckets_[slot].decay = parameter.decay;
      buckets_[slot].tied = tied;
      bucket_leaves_.push_back(0);
      if (!tied) open[parameter.decay ? 1 : 0] = slot;
    }
    Bucket& bucket = buckets_[slot];
    leaf_bucket_[i] = slot;
    leaf_offset[i] = bucket.size;
    ++bucket_leaves_[slot];
    for (const TensorSpec& tensor : parameter.tensors) {
      const Shard shard = shard_of(tensor, tp, mesh.at.tp);
      const std::int64_t size = product(local_shape(tensor, shard));
      bucket.tensors.push_back({tensor, shard, bucket.size, size});
      bucket.size += size;
    }
  }

  const auto float_options = at::TensorOptions().dtype(at::kFloat).device(options.device);
  for (Bucket& bucket : buckets_) {
    const std::int64_t padded = (bucket.size + dp - 1) / dp * dp;
    bucket.values = at::zeros({padded}, float_options.dtype(options.dtype));
    bucket.gradients = at::zeros({padded}, float_options);
    const bool sharded = mesh.plan.zero >= 1;
    bucket.owned_length = sharded ? padded / dp : padded;
    bucket.owned_begin = sharded ? mesh.at.dp * bucket.owned_length : 0;
    Tensor wide = options.dtype == at::kFloat ? bucket.values : at::zeros({padded}, float_options);
    for (const PlacedTensor& tensor : bucket.tensors) {
      wide.narrow(0, tensor.offset, tensor.size)
          .copy_(initial_shard(tensor.spec, tensor.shard, options.seed).view({-1}));
    }
    if (options.dtype == at::kFloat) {
      bucket.master = bucket.owned_values();
    } else {
      bucket.values.copy_(wide);
      bucket.master = wide.narrow(0, bucket.owned_begin, bucket.owned_length).clone();
    }
    bucket.moment1 = at::zeros({bucket.owned_length}, float_options);
    bucket.moment2 = at::zeros({bucket.owned_length}, float_options);
  }

  for (std::size_t i = 0; i < specs.size(); ++i) {
    const Bucket& bucket = buckets_[leaf_bucket_[i]];
    const std::vector<std::int64_t> shape = stacked_shape(specs[i], tp, mesh.at.tp);
    const auto view = [&](const Tensor& flat) {
      return flat.narrow(0, leaf_offset[i], product(shape)).view(shape);
    };
    Tensor leaf = view(bucket.values).detach().requires_grad_(true);
    leaf_gradients_.push_back(view(bucket.gradients));
    // FP32: autograd adds straight into the bucket. Otherwise gradient_ready() does, in FP32.
    if (options.dtype == at::kFloat) leaf.mutable_grad() = leaf_gradients_.back();
    auto accumulator = torch::autograd::impl::grad_accumulator(leaf);
    accumulator->add_post_hook(std::make_unique<Watch>(this, i));
    accumulators_.push_back(accumulator);
    leaves_.push_back(leaf);
  }
  // The norms of all layers are one bucket, which only the first layer's completes: it must not
  // hold up the others. A shared embedding is last of all.
  std::vector<std::size_t> first_leaf(buckets_.size(), specs.size());
  for (std::size_t i = specs.size(); i-- > 0;) first_leaf[leaf_bucket_[i]] = i;
  start_order_.resize(buckets_.size());
  std::iota(start_order_.begin(), start_order_.end(), std::size_t{0});
  std::stable_sort(start_order_.begin(), start_order_.end(), [&](std::size_t a, std::size_t b) {
    if (buckets_[a].tied != buckets_[b].tied) return buckets_[b].tied;
    return first_leaf[a] > first_leaf[b];
  });
  waiting_ = bucket_leaves_;
  reductions_.resize(buckets_.size());
}

ChunkParameters::~ChunkParameters() = default;

void ChunkParameters::zero_gradients() {
  for (Bucket& bucket : buckets_) bucket.gradients.zero_();
  waiting_ = bucket_leaves_;
  next_bucket_ = 0;
  last_pass_ = false;
}

void ChunkParameters::reduce_when_ready() {
  last_pass_ = true;
  waiting_ = bucket_leaves_;
}

void ChunkParameters::gradient_ready(std::size_t leaf) {
  Tensor& gradient = leaves_[leaf].mutable_grad();
  if (leaves_[leaf].scalar_type() != at::kFloat) {
    leaf_gradients_[leaf].add_(gradient);
    gradient.reset();
  }
  if (!last_pass_) return;
  --waiting_[leaf_bucket_[leaf]];
  start_ready_buckets();
}

// In the order of the buckets, whatever order they become ready in: all ranks must start alike.
void ChunkParameters::start_ready_buckets() {
  while (next_bucket_ < buckets_.size()) {
    const std::size_t next = start_order_[next_bucket_];
    if (waiting_[next] != 0 || buckets_[next].tied) return;
    start_reduction(next);
    ++next_bucket_;
  }
}

void ChunkParameters::start_reduction(std::size_t index) {
  Bucket& bucket = buckets_[index];
  reductions_[index] = mesh_.plan.zero >= 1 ? mesh_.dp->start_reduce_scatter(
                                                  bucket.owned_gradients(), bucket.gradients)
                                            : mesh_.dp->start_all_reduce(bucket.gradients);
}

void ChunkParameters::finish_reduction() {
  for (Bucket& bucket : buckets_) {
    if (bucket.tied) mesh_.tied->all_reduce(bucket.gradients);
  }
  while (next_bucket_ < buckets_.size()) start_reduction(start_order_[next_bucket_++]);
  for (Pending& reduction : reductions_) reduction.wait();
  for (Bucket& bucket : buckets_) sum_replicated(bucket);
}

// Every tensor-parallel rank has the same tensors at the same places, so the owned parts match too.
void ChunkParameters::sum_replicated(Bucket& bucket) const {
  if (mesh_.plan.tp == 1) return;
  struct Group {
    const Comm* comm;
    std::vector<Tensor> parts;
  };
  Group groups[2] = {{mesh_.tp, {}}, {mesh_.kv, {}}};
  const std::int64_t owned_end = bucket.owned_begin + bucket.owned_length;
  for (const PlacedTensor& tensor : bucket.tensors) {
    const bool partial = tensor.spec.copies == Copies::kPartial ||
                         (tensor.spec.copies == Copies::kPartialUnderSp && mesh_.plan.sp);
    const bool shared_kv = tensor.spec.cut != Cut::kNone && tensor.shard.copies > 1;
    if (!partial && !shared_kv) continue;
    const std::int64_t begin = std::max(tensor.offset, bucket.owned_begin);
    const std::int64_t end = std::min(tensor.offset + tensor.size, owned_end);
    if (begin < end) {
      groups[shared_kv ? 1 : 0].parts.push_back(bucket.gradients.narrow(0, begin, end - begin));
    }
  }
  for (Group& group : groups) {
    if (group.parts.empty()) continue;
    Tensor together = at::cat(group.parts);
    group.comm->all_reduce(together);
    std::int64_t offset = 0;
    for (Tensor& part : group.parts) {
      part.copy_(together.narrow(0, offset, part.numel()));
      offset += part.numel();
    }
  }
}

bool ChunkParameters::counts(const Bucket& bucket, const PlacedTensor& tensor) const {
  if (tensor.shard.copy != 0) return false;
  return !bucket.tied || mesh_.first_stage();
}

Tensor ChunkParameters::squared_norm() const {
  Tensor sum = at::zeros({}, buckets_[0].gradients.options().dtype(at::kDouble));
  for (const Bucket& bucket : buckets_) {
    const std::int64_t owned_end = bucket.owned_begin + bucket.owned_length;
    // Neighbours that all count are one range: one norm.
    std::int64_t begin = -1, end = -1;
    const auto flush = [&] {
      if (begin < end) {
        sum.add_(sum_of_squares(bucket.gradients.narrow(0, begin, end - begin)));
      }
      begin = end = -1;
    };
    for (const PlacedTensor& tensor : bucket.tensors) {
      if (!counts(bucket, tensor)) continue;
      const std::int64_t b = std::max(tensor.offset, bucket.owned_begin);
      const std::int64_t e = std::min(tensor.offset + tensor.size, owned_end);
      if (b >= e) continue;
      if (b != end) {
        flush();
        begin = b;
      }
      end = e;
    }
    flush();
  }
  return sum;
}

void ChunkParameters::publish_values() {
  std::vector<Pending> gathers;
  for (Bucket& bucket : buckets_) {
    if (bucket.values.scalar_type() != at::kFloat) bucket.owned_values().copy_(bucket.master);
    if (mesh_.plan.zero >= 1) {
      gathers.push_back(mesh_.dp->start_all_gather(bucket.values, bucket.owned_values()));
    }
  }
  for (Pending& gather : gathers) gather.wait();
}

}  // namespace copus
