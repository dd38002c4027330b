// A chunk's parameters in memory: flat buffers ("buckets") of values and of FP32 gradients, in the
// order in which the backward pass finishes them; reduced over data-parallel ranks as soon as they
// are whole.
//
// With ZeRO-1 each data-parallel rank owns one part of every bucket: it receives that part's summed
// gradient (reduce-scatter), keeps optimizer state for it alone, and the updated values are
// gathered. Without, a rank owns whole buckets. Used by one thread; the autograd thread calls in
// during backward().
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "copus/train/comm/mesh.h"
#include "copus/train/state/placement.h"

namespace copus {

enum class ParameterStart {
  kInitial,  // the weights that a run begins with, moments of 0
  kUnset,    // on the host, to be filled in and settled; only padding is set, to 0
};

struct BucketOptions {
  at::ScalarType dtype = at::kFloat;  // of the values that the model computes with
  at::Device device = at::kCPU;
  std::int64_t bucket_elements = 8 << 20;
  std::uint64_t seed = 1;
  ParameterStart start = ParameterStart::kInitial;
};

struct Bucket : BucketPlacement {
  Tensor values;     // flat, the model's dtype, padded to a multiple of dp
  Tensor gradients;  // flat, FP32; unset until zero_gradients()
  Tensor master;  // FP32 values of the owned part; shares memory with `values` where those are FP32
  Tensor moment1, moment2;  // Adam's, of the owned part

  Tensor owned_gradients() const { return gradients.narrow(0, owned_begin, owned_length); }
  Tensor owned_values() const { return values.narrow(0, owned_begin, owned_length); }
};

class ChunkParameters {
 public:
  ChunkParameters(const ModelSpec& model, const ChunkSpec& chunk, const Mesh& mesh,
                  const BucketOptions& options);
  ChunkParameters(const ChunkParameters&) = delete;
  ChunkParameters& operator=(const ChunkParameters&) = delete;
  ~ChunkParameters();

  // Brings what started unset to the device, adds gradients, and makes leaves of it. With BF16
  // values those that the rank owns are made from the master.
  void settle(at::Device device);

  // The leaves that the model computes with, in chunk_parameters() order.
  const std::vector<Tensor>& values() const { return leaves_; }
  std::vector<Bucket>& buckets() { return buckets_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

  // `replica_norm`: take_replica_norm() will be asked for.
  void zero_gradients(bool replica_norm = false);
  // From now on a bucket whose gradients are all there is reduced at once. Called before the last
  // backward pass of a step.
  void reduce_when_ready();
  // Starts what has not been started and waits for all; then sums the parts of replicated tensors.
  void finish_reduction();
  // Sum of squares of the owned gradients, each element of the model counted on one rank only.
  Tensor squared_norm() const;
  // The same of the watched scales alone.
  Tensor scales_squared_norm() const;
  // Squared norms of this replica's own gradient, before it is summed over replicas; each element
  // of the model counted on one rank of the replica. The prefix is what has been added since
  // zero_gradients(): note_prefix() is called between two backward passes, and exchanges nothing.
  // Both are asked for after finish_reduction(), by all ranks alike.
  void note_prefix();
  Tensor take_prefix_norm();
  Tensor take_replica_norm();
  // After an optimizer step, which has made the owned values: with ZeRO-1, everyone's.
  void publish_values();

 private:
  static void allocate_unset(Bucket& bucket, at::ScalarType dtype);
  static void set_initial(Bucket& bucket, const BucketOptions& options);
  struct Watch;  // an autograd hook on one leaf
  void gradient_ready(std::size_t leaf);
  void start_ready_buckets();
  void start_reduction(std::size_t bucket);
  void sum_replicated(Bucket& bucket) const;
  // A squared norm on its way: what is whole here is summed at once; of what other ranks hold parts
  // of, a copy is kept until they can be asked for theirs.
  struct NormInParts {
    Tensor whole;
    std::vector<Tensor> tp, kv, tied;
  };
  void add_to_norm(const Bucket& bucket, bool tied_is_summed, NormInParts& norm) const;
  Tensor take_norm(NormInParts& norm) const;
  // The group over which a tensor's gradients are parts of a sum; null: none.
  const Comm* sums_over(const PlacedTensor& tensor) const;
  template <typename Predicate>
  Tensor squared_norm_of(const Predicate& wanted) const;
  // Whether this rank counts a tensor's gradients, of those that hold the same.
  bool counts(const Bucket& bucket, const PlacedTensor& tensor) const;

  const Mesh& mesh_;
  std::vector<ParameterSpec> specs_;
  std::set<std::string> watched_;  // scales
  bool last_pass_ = false;
  bool replica_norm_wanted_ = false;
  NormInParts prefix_norm_, replica_norm_;
  std::vector<Bucket> buckets_;
  std::vector<Tensor> leaves_;
  std::vector<std::size_t> leaf_bucket_;
  std::vector<std::int64_t> leaf_offset_;
  std::vector<std::size_t> bucket_leaves_;  // how many leaves each bucket has
  std::vector<std::size_t> waiting_;        // leaves of each bucket without their gradient yet
  std::vector<std::size_t> start_order_;    // buckets as the backward pass completes them
  std::size_t next_bucket_ = 0;             // the first that has not been started
  std::vector<Pending> reductions_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
};

}  // namespace copus
