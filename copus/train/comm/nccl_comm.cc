// The NCCL backend: collectives between GPU tensors. wait() orders the current stream after the
// operation and does not block the host.
#include <cstdlib>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "copus/train/comm/comm.h"

namespace copus {
namespace {

// Turns off c10d's own handling of failures: its threads end the process with an uncaught
// exception, up to a minute later. Instead, Pending::wait_on_host() finds a failure, and the rank's
// watchdog limits the time of what wait_on_host() cannot see. The user's own settings are kept.
void leave_failures_to_the_caller() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const char* name : {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING",
                             "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_PROPAGATE_ERROR",
                             "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"}) {
      ::setenv(name, "0", /*overwrite=*/0);
    }
  });
}

class NcclBackend final : public CommBackend {
 public:
  explicit NcclBackend(const GroupAddress& address) {
    leave_failures_to_the_caller();
    auto options = c10d::ProcessGroupNCCL::Options::create();
    // Longer than the limit of Pending::wait_on_host(), whose error says what has failed.
    options->timeout = 2 * address.timeout;
    group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(address.store, address.rank, address.size,
                                                         options);
  }

  StartedWork all_reduce(Tensor tensor, bool maximum) override {
    c10d::AllreduceOptions options;
    options.reduceOp = maximum ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    std::vector<Tensor> tensors{tensor};
    return {group_->allreduce(tensors, options), {}};
  }

  StartedWork reduce_scatter(Tensor output, Tensor input) override {
    return {group_->_reduce_scatter_base(output, input, c10d::ReduceScatterOptions()), {}};
  }

  StartedWork all_gather(Tensor output, Tensor input) override {
    return {group_->_allgather_base(output, input, c10d::AllgatherOptions()), {}};
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

  void shut_down() override { group_->shutdown(); }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

}  // namespace

Result<std::unique_ptr<CommBackend>> make_nccl_backend(const GroupAddress& address) {
  return std::unique_ptr<CommBackend>(std::make_unique<NcclBackend>(address));
}

}  // namespace copus
