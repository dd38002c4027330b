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
#include <string>
#include <vector>

#include "copus/train/mesh.h"
#include "copus/train/parameters.h"

namespace copus {

struct BucketOptions {
  at::ScalarType dtype = at::kFloat;  // of the values that the model computes with
  at::Device device = at::kCPU;
  std::int64_t bucket_elements = 8 << 20;
  std::uint64_t seed = 1;
};

// One tensor's local part inside a bucket.
struct PlacedTensor {
  TensorSpec spec;
  Shard shard;
  std::int64_t offset = 0;  // first element in the bucket
  std::int64_t size = 0;    // elements, padding included
};

struct Bucket {
  bool decay = false;
  bool tied = false;      // the shared embedding: summed with the other end of the pipeline first
  Tensor values;          // flat, the model's dtype, padded to a multiple of dp
  Tensor gradients;       // flat, FP32
  std::int64_t size = 0;  // elements without that padding
  std::vector<PlacedTensor> tensors;

  // This rank's part: [begin, begin + length). Everything, unless optimizer state is sharded.
  std::int64_t owned_begin = 0;
  std::int64_t owned_length = 0;
  Tensor master;  // FP32 values of that part; shares memory with `values` where those are FP32
  Tensor moment1, moment2;  // Adam's

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

  // The leaves that the model computes with, in chunk_parameters() order.
  const std::vector<Tensor>& values() const { return leaves_; }
  std::vector<Bucket>& buckets() { return buckets_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

  void zero_gradients();
  // From now on a bucket whose gradients are all there is reduced at once. Called before the last
  // backward pass of a step.
  void reduce_when_ready();
  // Starts what has not been started and waits for all; then sums the parts of replicated tensors.
  void finish_reduction();
  // Sum of squares of the owned gradients, each element of the model counted on one rank only.
  Tensor squared_norm() const;
  // After an optimizer step: the model's dtype from the master, and with ZeRO-1 everyone's part.
  void publish_values();

 private:
  struct Watch;  // an autograd hook on one leaf
  void gradient_ready(std::size_t leaf);
  void start_ready_buckets();
  void start_reduction(std::size_t bucket);
  void sum_replicated(Bucket& bucket) const;
  // Whether this rank counts a tensor's gradients, of those that hold the same.
  bool counts(const Bucket& bucket, const PlacedTensor& tensor) const;

  const Mesh& mesh_;
  bool last_pass_ = false;
  std::vector<Bucket> buckets_;
  std::vector<Tensor> leaves_;
  std::vector<Tensor> leaf_gradients_;  // views into the buckets
  std::vector<std::size_t> leaf_bucket_;
  std::vector<std::size_t> bucket_leaves_;  // how many leaves each bucket has
  std::vector<std::size_t> waiting_;        // leaves of each bucket without their gradient yet
  std::vector<std::size_t> start_order_;    // buckets as the backward pass completes them
  std::size_t next_bucket_ = 0;             // the first that has not been started
  std::vector<Pending> reductions_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
};

}  // namespace copus
