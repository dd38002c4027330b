// Gloo: collectives between CPU tensors over TCP.
#include <cstdlib>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "copus/train/comm.h"

namespace copus {
namespace {

using Device = std::shared_ptr<::gloo::transport::Device>;

// Messages up to this size go straight to one member and back: Gloo's rings take 2(n-1) rounds,
// which between processes that share cores is many times as long.
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

// One listening device, and its one thread, for all groups of a process.
Device shared_device(const std::string& master) {
  static std::mutex mutex;
  static std::map<std::string, Device> devices;
  const std::lock_guard<std::mutex> lock(mutex);
  Device& device = devices[master];
  if (!device) device = make_device(master);
  return device;
}

// Gloo has no BF16 arithmetic: sums are taken in FP32 and rounded once.
bool needs_float(const Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

// Work that was done on the spot.
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

  // libtorch 1.13's Gloo has no reduce-scatter: an all-to-all and a local sum move the same bytes.
  StartedWork reduce_scatter(Tensor output, Tensor input) override {
    Tensor source = needs_float(input) ? input.to(at::kFloat) : input.contiguous();
    Tensor parts = at::empty({size_, output.numel()}, source.options());
    Tensor flat = source.view({size_, output.numel()});
    std::vector<std::int64_t> even;
    auto work = group_->alltoall_base(parts, flat, even, even);
    return {work, [parts, flat, output] { output.copy_(parts.sum(0).view_as(output)); }};
  }

  StartedWork all_gather(Tensor output, Tensor input) override {
    Tensor source = input.contiguous().view({-1});
    Tensor flat = output.view({size_, source.numel()});
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
    std::vector<Tensor> tensors{tensor};
    return {group_->broadcast(tensors, options), {}};
  }

  StartedWork send(Tensor tensor, int to) override {
    std::vector<Tensor> tensors{tensor};
    return {group_->send(tensors, to, 0), {}};
  }

  StartedWork receive(Tensor tensor, int from) override {
    std::vector<Tensor> tensors{tensor};
    return {group_->recv(tensors, from, 0), {}};
  }

 private:
  // Member 0 adds in the order of the members and sends the result to all: the same bits
  // everywhere.
  StartedWork small_all_reduce(const Tensor& tensor, bool maximum) {
    std::vector<StartedWork> transfers;
    const auto finish = [&] {
      for (StartedWork& transfer : transfers) transfer.work->wait();
      transfers.clear();
    };
    if (rank_ != 0) {
      transfers.push_back(send(tensor, 0));
      finish();
      transfers.push_back(receive(tensor, 0));
      finish();
      return {c10::make_intrusive<DoneWork>(), {}};
    }
    std::vector<Tensor> parts;
    for (int from = 1; from < size_; ++from) {
      parts.push_back(at::empty_like(tensor));
      transfers.push_back(receive(parts.back(), from));
    }
    finish();
    const at::NoGradGuard no_grad;
    for (const Tensor& part : parts) {
      if (maximum) {
        at::maximum_out(const_cast<Tensor&>(tensor), tensor, part);
      } else {
        tensor.add_(part);
      }
    }
    for (int to = 1; to < size_; ++to) transfers.push_back(send(tensor, to));
    finish();
    return {c10::make_intrusive<DoneWork>(), {}};
  }

  int rank_;
  std::int64_t size_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

}  // namespace

Result<std::unique_ptr<CommBackend>> make_gloo_backend(const GroupAddress& address) {
  return std::unique_ptr<CommBackend>(std::make_unique<GlooBackend>(address));
}

}  // namespace copus
