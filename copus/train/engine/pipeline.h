// Pipeline: runs a Schedule, that is this rank's forward and backward passes in the schedule's
// order, with messages to the neighbouring stages. The cost model times the same schedule.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "copus/spec/schedule.h"
#include "copus/train/comm/mesh.h"
#include "copus/train/engine/buckets.h"
#include "copus/train/model/model.h"

namespace copus {

// How many sends of one rank may be pending at once.
constexpr std::size_t max_pending_sends(std::int64_t pp, std::int64_t vp) {
  return static_cast<std::size_t>(2 * pp * vp);
}

struct MicroBatch {
  Tensor tokens;   // [micro_batch, seq_len]; undefined on stages that need no tokens
  Tensor targets;  // the same
};

// The chunks of one rank, in model order.
struct LocalChunk {
  const ModelChunk* model = nullptr;
  ChunkParameters* parameters = nullptr;
};

class Pipeline {
 public:
  Pipeline(const Mesh& mesh, std::vector<LocalChunk> chunks, std::vector<std::int64_t> activation,
           at::TensorOptions options);

  // Sets the tap, which the pipeline opens during the first tap->micro_batches micro-batches.
  void set_tap(ScaleTap* tap) { tap_ = tap; }

  // Runs every chunk forward and backward once, without messages between stages, and drops the
  // results. A GPU loads a kernel at its first use, and before that waits for all running kernels.
  // At that time no message that waits for this rank may be under way. So the kernels are loaded
  // here.
  void load_kernels(std::int64_t seq_len);

  // Runs one step's passes. Adds the gradients of `loss_weight` times the sum of the micro-batches'
  // losses to the buckets, and starts their reduction. After the first `prefix` micro-batches (0:
  // never), each chunk notes the norm of its gradients. Returns the losses on the last stage, and
  // an empty tensor on the others.
  Tensor train(const Schedule& schedule, const std::vector<MicroBatch>& batches, double loss_weight,
               std::int64_t prefix = 0);
  // Runs only forward passes, of `rows` sequences each. Returns the micro-batches' losses on the
  // last stage, and an empty tensor on the others.
  Tensor evaluate(const std::vector<MicroBatch>& batches, std::int64_t rows);

 private:
  struct Passing {  // what one chunk and micro-batch keeps from its forward to its backward pass
    Tensor input, output;
  };
  struct Inbox {  // a message that is being received; undefined if the action takes no message
    Tensor message;
    Pending arrival;
    Tensor take() {
      arrival.wait();
      return std::exchange(message, Tensor());
    }
  };
  LocalChunk& chunk(std::int32_t index) {
    return chunks_[static_cast<std::size_t>(index / mesh_.plan.pp)];
  }
  // Starts to receive the message that an action takes.
  Inbox expect(const Action& action);
  void send(const Comm* group, const Tensor& tensor, int to);
  void forward(const Action& action, const MicroBatch& batch, Inbox& inbox);
  void backward(const Action& action, double loss_weight, Inbox& inbox);
  void finish_sends();
  void open_tap(const Action& action) {
    if (tap_ != nullptr) tap_->open = action.micro_batch < tap_->micro_batches;
  }

  const Mesh& mesh_;
  std::vector<LocalChunk> chunks_;
  std::vector<std::int64_t> activation_;
  at::TensorOptions options_;
  std::int32_t micro_batches_ = 0;
  std::int32_t prefix_ = 0;
  ScaleTap* tap_ = nullptr;
  std::vector<Passing> passing_;             // by local chunk and micro-batch
  std::vector<std::int32_t> backward_left_;  // by local chunk
  std::vector<Tensor> losses_;
  std::deque<Pending> sends_;
};

}  // namespace copus
