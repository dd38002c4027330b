// Communication between ranks: c10d, with names. Every operation has a time limit; an operation
// that fails says which group, which operation and which ranks are missing.
//
// A Comm is used by one thread. Operations on one group must be started in the same order by all
// its members.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "copus/base/result.h"
#include "copus/train/device/torch_api.h"
#include "copus/train/health/activity.h"

namespace copus {

// What a broken operation throws; caught once, at the rank's top.
class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What an exception says, without the stack trace that libtorch adds.
std::string first_line(const std::exception& error);

// Work that a backend has started. `finish` runs after it, where the result needs one more step.
struct StartedWork {
  c10::intrusive_ptr<c10d::Work> work;
  std::function<void()> finish;
};

// One group on one transport (Gloo on CPUs, NCCL on GPUs). Ranks are members, 0 .. size-1.
class CommBackend {
 public:
  virtual ~CommBackend() = default;
  virtual StartedWork all_reduce(Tensor tensor, bool maximum) = 0;      // in place
  virtual StartedWork reduce_scatter(Tensor output, Tensor input) = 0;  // input: size outputs
  virtual StartedWork all_gather(Tensor output, Tensor input) = 0;      // output: size inputs
  virtual StartedWork broadcast(Tensor tensor, int root) = 0;
  virtual StartedWork send(Tensor tensor, int to) = 0;
  virtual StartedWork receive(Tensor tensor, int from) = 0;
  // At the end of a run that went well, before the destructor. All members do it in one order.
  virtual void shut_down() {}
};

struct GroupAddress {
  c10::intrusive_ptr<c10d::Store> store;  // this group's own prefix
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{};
  std::string interface_hint;  // the master's address: a loopback one keeps Gloo on loopback
};
// Each in its own file; the stub that CMake picks where the library is missing gives an error.
Result<std::unique_ptr<CommBackend>> make_gloo_backend(const GroupAddress& address);
Result<std::unique_ptr<CommBackend>> make_nccl_backend(const GroupAddress& address);

// Where the ranks meet: made once per process.
struct Rendezvous {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{300'000};
  std::string master_address = "127.0.0.1";
  bool cuda = false;
  // What this rank is doing, for those who wait for it.
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();
};
// Serves a store on `port` (0: a free one) for `world_size` ranks; returns it with its port.
struct ServedStore {
  c10::intrusive_ptr<c10d::Store> store;
  int port = 0;
};
Result<ServedStore> serve_store(int port, int world_size, std::chrono::milliseconds timeout);
Result<c10::intrusive_ptr<c10d::Store>> join_store(const std::string& address, int port,
                                                   int world_size,
                                                   std::chrono::milliseconds timeout);
// Inside one process: for tests with a thread per rank.
c10::intrusive_ptr<c10d::Store> local_store();
// The same store, under names of its own.
c10::intrusive_ptr<c10d::Store> part_of_store(const c10::intrusive_ptr<c10d::Store>& store,
                                              const std::string& name);

class Comm;

// An operation under way. wait() throws CommError. One that is dropped without it (only where the
// run ends by an error) leaves its tensors to c10d, which keeps them until the operation is over.
class Pending {
 public:
  Pending() = default;
  void wait();
  // As wait(); and where that only orders a GPU's stream, until the work is done or its time is
  // over.
  void wait_on_host();

 private:
  friend class Comm;
  const Comm* comm_ = nullptr;
  StartedWork started_;
  Operation operation_ = Operation::kAllReduce;
  std::int64_t number_ = 0;
  std::vector<Tensor> kept_;  // alive until done
};

// A group of ranks. One member only: every operation is a no-op, which is what its law asks for.
class Comm {
 public:
  // `name`: tp, dp, …; `members`: global ranks, this rank among them. Blocks until all have come.
  // Each has to come anew, by another number, where an attempt has failed: what was left of that is
  // none of this group's. An error leaves the rank as it was.
  static Result<std::unique_ptr<Comm>> create(const Rendezvous& rendezvous, std::string name,
                                              std::vector<int> members, int attempt = 0);

  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }
  int rank() const { return rank_; }  // among the members
  int size() const { return static_cast<int>(members_.size()); }

  Pending start_all_reduce(Tensor tensor) const;
  Pending start_reduce_scatter(Tensor output, Tensor input) const;
  Pending start_all_gather(Tensor output, Tensor input) const;
  Pending start_broadcast(Tensor tensor, int root) const;
  Pending start_send(Tensor tensor, int to) const;
  Pending start_receive(Tensor tensor, int from) const;

  void all_reduce(Tensor tensor) const { start_all_reduce(std::move(tensor)).wait(); }
  void all_reduce_max(Tensor tensor) const;
  void reduce_scatter(Tensor output, Tensor input) const;
  void all_gather(Tensor output, Tensor input) const;
  void broadcast(Tensor tensor, int root) const;
  void barrier() const;
  // Until all members have come, who may be long at their disks: saving or loading a checkpoint
  // they have longest_time() of it, and so has, since that moment, who waits for them. Through the
  // ranks' meeting point.
  void meet(std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now()) const;

  // At the end of a run that went well: no operation follows. All members shut their groups down in
  // one order.
  void shut_down();

  std::int64_t started() const { return operations_; }  // operations so far
  Activity& activity() const { return *rendezvous_.activity; }
  // What this thread has spent waiting for this group, since the last call.
  Seconds take_waited() const;

 private:
  friend class Pending;
  Comm() = default;
  void connect() const;
  Pending start(Operation operation, std::vector<Tensor> kept,
                const std::function<StartedWork()>& call) const;
  [[noreturn]] void fail(Operation operation, std::int64_t number, const std::string& why) const;

  Rendezvous rendezvous_;
  std::string name_;
  std::vector<int> members_;
  std::string key_;  // its own in the store
  int rank_ = 0;
  int activity_group_ = 0;
  std::unique_ptr<CommBackend> backend_;
  mutable std::int64_t operations_ = 0, meetings_ = 0;
  mutable Seconds waited_;
};

}  // namespace copus
