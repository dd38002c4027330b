// The Gloo backend: collectives between CPU tensors over TCP.
#include <sched.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "copus/train/comm/comm.h"

namespace copus {
namespace {

using Device = std::shared_ptr<::gloo::transport::Device>;

// Messages up to this size go directly to one member and back. Gloo's rings take 2(n-1) rounds,
// which takes many times as long between processes that share cores.
constexpr std::int64_t kSmallBytes = 256 << 10;

bool is_small(const Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes()) <= kSmallBytes;
}

Device make_device(const std::string& master) {
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  }
  if (master == "localhost" || master.starts_with("127.")) {
    return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  }
  return c10d::ProcessGroupGloo::createDefaultDevice();
}

// While an object of this class lives, the calling thread and the threads that it starts have
// SCHED_BATCH: such a thread does not take a core from another thread when it wakes up. Gloo's
// thread wakes up when a peer has written to a connection. It then needs the lock of that
// connection, which a thread that writes to it holds. If ranks share cores, Gloo's thread would
// otherwise take the core of that writer and try the lock again and again for a whole time slice.
class BatchScheduling {
 public:
  BatchScheduling() : usual_(::sched_getscheduler(0) == SCHED_OTHER) {
    if (usual_) set(SCHED_BATCH);
  }
  BatchScheduling(const BatchScheduling&) = delete;
  BatchScheduling& operator=(const BatchScheduling&) = delete;
  ~BatchScheduling() {
    if (usual_) set(SCHED_OTHER);
  }

 private:
  static void set(int policy) {
    const sched_param none{};
    ::sched_setscheduler(0, policy, &none);  // if refused: slower, but correct
  }

  bool usual_;
};

// Returns the one listening device, with its one thread, that all groups of this process share.
Device shared_device(const std::string& master) {
  static std::mutex mutex;
  static std::map<std::string, Device> devices;
  const std::lock_guard<std::mutex> lock(mutex);
  Device& device = devices[master];
  if (!device) {
    const BatchScheduling patient;
    device = make_device(master);
  }
  return device;
}

// Gloo has no BF16 arithmetic, so such tensors are added in FP32 and rounded once.
bool needs_float(const Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

// Gloo does not know BF16. A tensor that is only copied is sent as FP16, with the same bits.
Tensor as_known_bits(const Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? tensor.view(at::kHalf) : tensor;
}

// Work that is always done: the StartedWork's `finish` does the waiting.
class DoneWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
};

class GlooBackend final : public CommBackend {
 public:
  explicit GlooBackend(const GroupAddress& address) : rank_(address.rank), size_(address.size) {
    auto options = c10d::ProcessGroupGloo::Options::create(address.timeout);
    options->devices = {shared_device(address.interface_hint)};
    options->threads = 1;
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(address.store, address.rank, address.size,
                                                         options);
  }

  StartedWork all_reduce(Tensor tensor, bool maximum) override {
    c10d::AllreduceOptions options;
    options.reduceOp = maximum ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    if (needs_float(tensor)) {
      const Tensor wide = tensor.to(at::kFloat);
      std::vector<Tensor> tensors{wide};
      return {group_->allreduce(tensors, options), [tensor, wide] { tensor.copy_(wide); }};
    }
    if (tensor.is_contiguous() && is_small(tensor)) return small_all_reduce(tensor, maximum);
    std::vector<Tensor> tensors{tensor};
    return {group_->allreduce(tensors, options), {}};
  }

  // libtorch 1.13's Gloo has no reduce-scatter. An all-to-all and a local sum move the same number
  // of bytes.
  StartedWork reduce_scatter(Tensor output, Tensor input) override {
    Tensor source = needs_float(input) ? input.to(at::kFloat) : input.contiguous();
    Tensor parts = at::empty({size_, output.numel()}, source.options());
    Tensor flat = source.view({size_, output.numel()});
    std::vector<std::int64_t> even;
    auto work = group_->alltoall_base(parts, flat, even, even);
    return {work, [parts, flat, output] { output.copy_(parts.sum(0).view_as(output)); }};
  }

  StartedWork all_gather(Tensor output, Tensor input) override {
    Tensor source = as_known_bits(input.contiguous().view({-1}));
    Tensor flat = as_known_bits(output).view({size_, source.numel()});
    if (is_small(output)) {
      Tensor copies = source.expand({size_, source.numel()}).contiguous();
      std::vector<std::int64_t> even;
      auto work = group_->alltoall_base(flat, copies, even, even);
      return {work, [copies] {}};
    }
    std::vector<std::vector<Tensor>> outputs(1);
    for (std::int64_t i = 0; i < size_; ++i) outputs[0].push_back(flat[i]);
    std::vector<Tensor> inputs{source};
    return {group_->allgather(outputs, inputs), {}};
  }

  StartedWork broadcast(Tensor tensor, int root) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<Tensor> tensors{as_known_bits(tensor)};
    return {group_->broadcast(tensors, options), {}};
  }

  StartedWork send(Tensor tensor, int to) override { return {send(tensor, to, 0), {}}; }
  StartedWork receive(Tensor tensor, int from) override { return {receive(tensor, from, 0), {}}; }

 private:
  using Transfer = c10::intrusive_ptr<c10d::Work>;
  Transfer send(const Tensor& tensor, int to, int tag) {
    std::vector<Tensor> tensors{tensor};
    return group_->send(tensors, to, tag);
  }
  Transfer receive(const Tensor& tensor, int from, int tag) {
    std::vector<Tensor> tensors{tensor};
    return group_->recv(tensors, from, tag);
  }

  // Member 0 adds the tensors in the order of the members and sends the result to all, so that all
  // get the same bits. It replies only after every member's tensor has arrived, so a member can
  // receive the result into the tensor that it sends. Each such operation has its own tag, so
  // several may be under way, and may be waited for in any order.
  StartedWork small_all_reduce(const Tensor& tensor, bool maximum) {
    using Transfers = std::vector<Transfer>;
    const int tag = next_tag_;
    next_tag_ = next_tag_ % kLastTag + 1;
    const auto finish = [](const Transfers& transfers) {
      for (const auto& transfer : transfers) transfer->wait();
    };
    if (rank_ != 0) {
      const Transfers both{send(tensor, 0, tag), receive(tensor, 0, tag)};
      return {c10::make_intrusive<DoneWork>(), [finish, both] { finish(both); }};
    }
    Transfers arrivals;
    std::vector<Tensor> parts;
    for (int from = 1; from < size_; ++from) {
      parts.push_back(at::empty_like(tensor));
      arrivals.push_back(receive(parts.back(), from, tag));
    }
    return {c10::make_intrusive<DoneWork>(), [this, finish, arrivals, parts, tensor, maximum, tag] {
              finish(arrivals);
              const at::NoGradGuard no_grad;
              Tensor result = tensor;
              for (const Tensor& part : parts) {
                if (maximum) {
                  at::maximum_out(result, result, part);
                } else {
                  result.add_(part);
                }
              }
              Transfers replies;
              for (int to = 1; to < size_; ++to) replies.push_back(send(tensor, to, tag));
              finish(replies);
            }};
  }

  static constexpr int kLastTag = 1 << 20;  // tag 0 is for send() and receive()
  int next_tag_ = 1;
  int rank_;
  std::int64_t size_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

Result<std::unique_ptr<CommBackend>> make_gloo_backend(const GroupAddress& address) {
  return std::unique_ptr<CommBackend>(std::make_unique<GlooBackend>(address));
}

}  // namespace copus
