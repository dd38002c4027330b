#include "copus/train/engine/buckets.h"

#include <algorithm>
#include <numeric>

#include "copus/train/engine/adamw.h"

namespace copus {
namespace {

// Returns the initial values of the rank's part of a tensor. Computes only that part.
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

// Returns the shape of a parameter: its tensors' local parts, stacked by rows.
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

// A hook that autograd calls after it has added to a leaf's gradient.
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
    : mesh_(mesh), specs_(chunk_parameters(model, chunk)) {
  for (const ParameterSpec& parameter : specs_) {
    for (const TensorSpec& tensor : parameter.tensors) {
      if (is_watched_scale(model, tensor.name)) watched_.insert(tensor.name);
    }
  }
  leaf_bucket_.resize(specs_.size());
  leaf_offset_.resize(specs_.size());
  for (BucketPlacement& placement :
       place_chunk(model, chunk, mesh.plan, mesh.at, options.bucket_elements)) {
    for (const PlacedParameter& parameter : placement.parameters) {
      leaf_bucket_[parameter.index] = buckets_.size();
      leaf_offset_[parameter.index] = parameter.offset;
    }
    bucket_leaves_.push_back(placement.parameters.size());
    static_cast<BucketPlacement&>(buckets_.emplace_back()) = std::move(placement);
  }
  // Sorts the buckets by the time at which the backward pass completes them, that is by their first
  // leaf. The norms of all layers are in one bucket. It is complete only after the first layer, so
  // it must not hold up the other buckets. A shared embedding comes last.
  std::vector<std::size_t> first_leaf(buckets_.size(), specs_.size());
  for (std::size_t i = specs_.size(); i-- > 0;) first_leaf[leaf_bucket_[i]] = i;
  start_order_.resize(buckets_.size());
  std::iota(start_order_.begin(), start_order_.end(), std::size_t{0});
  std::stable_sort(start_order_.begin(), start_order_.end(), [&](std::size_t a, std::size_t b) {
    if (buckets_[a].tied != buckets_[b].tied) return buckets_[b].tied;
    return first_leaf[a] > first_leaf[b];
  });
  reductions_.resize(buckets_.size());

  if (options.start == ParameterStart::kUnset) {
    for (Bucket& bucket : buckets_) allocate_unset(bucket, options.dtype);
    return;
  }
  for (Bucket& bucket : buckets_) set_initial(bucket, options);
  settle(options.device);
}

void ChunkParameters::allocate_unset(Bucket& bucket, at::ScalarType dtype) {
  bucket.values = at::empty({bucket.padded}, at::TensorOptions(dtype));
  bucket.moment1 = at::empty({bucket.owned_length}, at::kFloat);
  bucket.moment2 = at::empty({bucket.owned_length}, at::kFloat);
  bucket.master =
      dtype == at::kFloat ? bucket.owned_values() : at::empty({bucket.owned_length}, at::kFloat);
  // Clears the padding, since nothing fills it in later.
  const auto clear = [&](std::int64_t begin, std::int64_t end) {
    bucket.values.narrow(0, begin, end - begin).zero_();
    begin = std::max(begin, bucket.owned_begin) - bucket.owned_begin;
    end = std::min(end - bucket.owned_begin, bucket.owned_length);
    if (begin >= end) return;
    for (Tensor* state : {&bucket.master, &bucket.moment1, &bucket.moment2}) {
      state->narrow(0, begin, end - begin).zero_();
    }
  };
  for (const PlacedTensor& tensor : bucket.tensors) {
    if (tensor.shard.padded != tensor.shard.length) {
      clear(tensor.offset, tensor.offset + tensor.size);
    }
  }
  clear(bucket.size, bucket.padded);
}

void ChunkParameters::set_initial(Bucket& bucket, const BucketOptions& options) {
  const auto float_options = at::TensorOptions().dtype(at::kFloat).device(options.device);
  Tensor wide = at::zeros({bucket.padded}, float_options);
  for (const PlacedTensor& tensor : bucket.tensors) {
    wide.narrow(0, tensor.offset, tensor.size)
        .copy_(initial_shard(tensor.spec, tensor.shard, options.seed).view({-1}));
  }
  if (options.dtype == at::kFloat) {
    bucket.values = wide;
    bucket.master = bucket.owned_values();
  } else {
    bucket.values = wide.to(options.dtype);
    bucket.master = wide.narrow(0, bucket.owned_begin, bucket.owned_length).clone();
  }
  bucket.moment1 = at::zeros({bucket.owned_length}, float_options);
  bucket.moment2 = at::zeros({bucket.owned_length}, float_options);
}

void ChunkParameters::settle(at::Device device) {
  for (Bucket& bucket : buckets_) {
    const bool own_master = bucket.values.scalar_type() != at::kFloat;
    bucket.values = bucket.values.to(device);
    bucket.moment1 = bucket.moment1.to(device);
    bucket.moment2 = bucket.moment2.to(device);
    bucket.master = own_master ? bucket.master.to(device) : bucket.owned_values();
    if (own_master) bucket.owned_values().copy_(bucket.master);
    bucket.gradients =
        at::empty({bucket.padded}, at::TensorOptions().dtype(at::kFloat).device(device));
  }
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const Bucket& bucket = buckets_[leaf_bucket_[i]];
    const std::vector<std::int64_t> shape = stacked_shape(specs_[i], mesh_.plan.tp, mesh_.at.tp);
    const auto view = [&](const Tensor& flat) {
      return flat.narrow(0, leaf_offset_[i], element_count(shape)).view(shape);
    };
    Tensor leaf = view(bucket.values).detach().requires_grad_(true);
    // Autograd adds each gradient straight into the bucket, in FP32 even if the values are BF16.
    leaf.mutable_grad() = view(bucket.gradients);
    auto accumulator = torch::autograd::impl::grad_accumulator(leaf);
    accumulator->add_post_hook(std::make_unique<Watch>(this, i));
    accumulators_.push_back(accumulator);
    leaves_.push_back(leaf);
  }
  waiting_ = bucket_leaves_;
}

ChunkParameters::~ChunkParameters() = default;

void ChunkParameters::zero_gradients(bool replica_norm) {
  for (Bucket& bucket : buckets_) bucket.gradients.zero_();
  replica_norm_wanted_ = replica_norm;
  prefix_norm_ = replica_norm_ = {};
  waiting_ = bucket_leaves_;
  next_bucket_ = 0;
  last_pass_ = false;
}

void ChunkParameters::reduce_when_ready() {
  last_pass_ = true;
  waiting_ = bucket_leaves_;
}

void ChunkParameters::gradient_ready(std::size_t leaf) {
  if (!last_pass_) return;
  --waiting_[leaf_bucket_[leaf]];
  start_ready_buckets();
}

// Starts reductions in start_order_, and not in the order in which buckets become ready: all ranks
// must start them in the same order.
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
  if (replica_norm_wanted_) add_to_norm(bucket, /*tied_is_summed=*/true, replica_norm_);
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

const Comm* ChunkParameters::sums_over(const PlacedTensor& tensor) const {
  if (mesh_.plan.tp == 1) return nullptr;
  if (tensor.spec.cut != Cut::kNone && tensor.shard.copies > 1) return mesh_.kv;
  const bool partial = tensor.spec.copies == Copies::kPartial ||
                       (tensor.spec.copies == Copies::kPartialUnderSp && mesh_.plan.sp);
  return partial ? mesh_.tp : nullptr;
}

// All tensor-parallel ranks have the same tensors at the same offsets, so their owned parts match.
void ChunkParameters::sum_replicated(Bucket& bucket) const {
  if (mesh_.plan.tp == 1) return;
  struct Group {
    const Comm* comm;
    std::vector<Tensor> parts;
  };
  Group groups[2] = {{mesh_.tp, {}}, {mesh_.kv, {}}};
  const std::int64_t owned_end = bucket.owned_begin + bucket.owned_length;
  for (const PlacedTensor& tensor : bucket.tensors) {
    const Comm* group = sums_over(tensor);
    if (group == nullptr) continue;
    const std::int64_t begin = std::max(tensor.offset, bucket.owned_begin);
    const std::int64_t end = std::min(tensor.offset + tensor.size, owned_end);
    if (begin < end) {
      groups[group == mesh_.kv ? 1 : 0].parts.push_back(
          bucket.gradients.narrow(0, begin, end - begin));
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

namespace {

// Adds the squares of ranges of a flat tensor to a sum. Neighbouring ranges are added in one call.
class RangeNorm {
 public:
  RangeNorm(const Tensor& flat, Tensor& sum) : flat_(flat), sum_(sum) {}
  ~RangeNorm() { flush(); }
  RangeNorm(const RangeNorm&) = delete;
  RangeNorm& operator=(const RangeNorm&) = delete;

  void add(std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    if (begin != end_) {
      flush();
      begin_ = begin;
    }
    end_ = end;
  }

 private:
  void flush() {
    if (begin_ < end_) add_sum_of_squares(flat_.narrow(0, begin_, end_ - begin_), sum_);
  }
  const Tensor& flat_;
  Tensor& sum_;
  std::int64_t begin_ = -1, end_ = -1;
};

Tensor zero_sum(const Bucket& bucket) {
  return at::zeros({}, bucket.gradients.options().dtype(at::kDouble));
}

}  // namespace

template <typename Predicate>
Tensor ChunkParameters::squared_norm_of(const Predicate& wanted) const {
  Tensor sum = zero_sum(buckets_[0]);
  for (const Bucket& bucket : buckets_) {
    RangeNorm ranges(bucket.gradients, sum);
    for (const PlacedTensor& tensor : bucket.tensors) {
      if (!counts(bucket, tensor) || !wanted(tensor)) continue;
      ranges.add(std::max(tensor.offset, bucket.owned_begin),
                 std::min(tensor.offset + tensor.size, bucket.owned_begin + bucket.owned_length));
    }
  }
  return sum;
}

Tensor ChunkParameters::squared_norm() const {
  return squared_norm_of([](const PlacedTensor&) { return true; });
}

Tensor ChunkParameters::scales_squared_norm() const {
  return squared_norm_of(
      [&](const PlacedTensor& tensor) { return watched_.contains(tensor.spec.name); });
}

void ChunkParameters::add_to_norm(const Bucket& bucket, bool tied_is_summed,
                                  NormInParts& norm) const {
  if (!norm.whole.defined()) norm.whole = zero_sum(bucket);
  if (bucket.tied && !tied_is_summed) {
    norm.tied.push_back(bucket.gradients.narrow(0, 0, bucket.size).clone());
    return;
  }
  RangeNorm ranges(bucket.gradients, norm.whole);
  for (const PlacedTensor& tensor : bucket.tensors) {
    if (const Comm* group = sums_over(tensor)) {
      (group == mesh_.kv ? norm.kv : norm.tp)
          .push_back(bucket.gradients.narrow(0, tensor.offset, tensor.size).clone());
    } else if (counts(bucket, tensor)) {
      ranges.add(tensor.offset, tensor.offset + tensor.size);
    }
  }
}

void ChunkParameters::note_prefix() {
  prefix_norm_ = {};
  for (const Bucket& bucket : buckets_) {
    add_to_norm(bucket, /*tied_is_summed=*/false, prefix_norm_);
  }
}

Tensor ChunkParameters::take_prefix_norm() { return take_norm(prefix_norm_); }
Tensor ChunkParameters::take_replica_norm() { return take_norm(replica_norm_); }

// The members of a group end with the same sum. Only the first of them counts it.
Tensor ChunkParameters::take_norm(NormInParts& norm) const {
  const auto add = [&](std::vector<Tensor>& parts, const Comm* group) {
    if (parts.empty()) return;
    const Tensor together = at::cat(parts);
    group->all_reduce(together);
    if (group->rank() == 0) add_sum_of_squares(together, norm.whole);
  };
  add(norm.tp, mesh_.tp);
  add(norm.kv, mesh_.kv);
  add(norm.tied, mesh_.tied);
  return std::exchange(norm, {}).whole;
}

void ChunkParameters::publish_values() {
  if (mesh_.plan.zero == 0) return;
  std::vector<Pending> gathers;
  for (Bucket& bucket : buckets_) {
    gathers.push_back(mesh_.dp->start_all_gather(bucket.values, bucket.owned_values()));
  }
  for (Pending& gather : gathers) gather.wait();
}

}  // namespace copus
