// ChunkParameters: a chunk's parameters in memory. They are in flat buffers ("buckets") of values
// and of FP32 gradients. The gradients of a bucket are reduced over the data-parallel ranks as soon
// as the backward pass has completed them.
//
// With ZeRO-1 each data-parallel rank owns one part of every bucket. It receives the summed
// gradient of that part (reduce-scatter) and keeps optimizer state for that part only. After the
// update, the ranks gather each other's values. Without ZeRO-1 every rank owns whole buckets.
// One thread uses a ChunkParameters; during backward(), autograd's thread calls into it.
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
  kInitial,  // the weights that a run begins with; the moments are 0
  kUnset,    // on the host, with only the padding set (to 0); to be filled in, then settled
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
  Tensor gradients;  // flat, FP32; uninitialised before zero_gradients()
  Tensor master;     // FP32 values of the owned part; shares memory with `values` if those are FP32
  Tensor moment1, moment2;  // Adam's moments of the owned part

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

  // Moves parameters that started as kUnset to the device, allocates gradients, and makes the
  // leaves. If the values are BF16, rounds the owned ones from the master.
  void settle(at::Device device);

  // The leaves that the model computes with, in chunk_parameters() order.
  const std::vector<Tensor>& values() const { return leaves_; }
  std::vector<Bucket>& buckets() { return buckets_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

  // Clears the gradients before a step. `replica_norm`: take_replica_norm() will be called.
  void zero_gradients(bool replica_norm = false);
  // From now on, a bucket is reduced as soon as all its gradients are complete. Called before the
  // last backward pass of a step.
  void reduce_when_ready();
  // Starts the reductions that have not been started, and waits for all of them. Then sums the
  // gradients of replicated tensors.
  void finish_reduction();
  // Returns the sum of squares of the owned gradients. Of several ranks that hold the same element,
  // only one counts it.
  Tensor squared_norm() const;
  // The same for the watched scales only.
  Tensor scales_squared_norm() const;
  // Squared norms of this replica's own gradient, before it is summed over replicas. Of the ranks
  // of the replica that hold the same element, only one counts it. take_prefix_norm() returns the
  // norm of the gradient at the time of note_prefix(), which is called between two backward passes
  // and sends no message. All ranks call the take functions alike, after finish_reduction().
  void note_prefix();
  Tensor take_prefix_norm();
  Tensor take_replica_norm();
  // Called after the optimizer has updated the owned values. With ZeRO-1, gathers the values that
  // other ranks own.
  void publish_values();

 private:
  static void allocate_unset(Bucket& bucket, at::ScalarType dtype);
  static void set_initial(Bucket& bucket, const BucketOptions& options);
  struct Watch;  // an autograd hook on one leaf
  void gradient_ready(std::size_t leaf);
  void start_ready_buckets();
  void start_reduction(std::size_t bucket);
  void sum_replicated(Bucket& bucket) const;
  // A squared norm that is not complete yet. `whole` is the sum over gradients that are complete on
  // this rank. `tp`, `kv` and `tied` are copies of gradients that must first be summed over that
  // group, which needs a message.
  struct NormInParts {
    Tensor whole;
    std::vector<Tensor> tp, kv, tied;
  };
  void add_to_norm(const Bucket& bucket, bool tied_is_summed, NormInParts& norm) const;
  Tensor take_norm(NormInParts& norm) const;
  // Returns the group over which a tensor's gradients must be summed, because each member has only
  // a part of the sum; null if there is none.
  const Comm* sums_over(const PlacedTensor& tensor) const;
  template <typename Predicate>
  Tensor squared_norm_of(const Predicate& wanted) const;
  // Returns whether this rank counts a tensor's gradients, of all ranks that hold the same ones.
  bool counts(const Bucket& bucket, const PlacedTensor& tensor) const;

  const Mesh& mesh_;
  std::vector<ParameterSpec> specs_;
  std::set<std::string> watched_;  // names of the watched scales
  bool last_pass_ = false;
  bool replica_norm_wanted_ = false;
  NormInParts prefix_norm_, replica_norm_;
  std::vector<Bucket> buckets_;
  std::vector<Tensor> leaves_;
  std::vector<std::size_t> leaf_bucket_;
  std::vector<std::int64_t> leaf_offset_;
  std::vector<std::size_t> bucket_leaves_;  // the number of leaves of each bucket
  std::vector<std::size_t> waiting_;        // how many of them have no gradient yet
  std::vector<std::size_t> start_order_;    // buckets in the order in which they are reduced
  std::size_t next_bucket_ = 0;             // in start_order_: the first that is not started
  std::vector<Pending> reductions_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
};

}  // namespace copus
