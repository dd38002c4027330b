// Communication between ranks, over c10d. Every operation has a time limit, and the error of a
// failed operation names the group, the operation and the ranks that are missing.
//
// Only one thread may use a Comm. All members must start a group's operations in the same order.
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

// The exception of a failed operation, after which this rank cannot continue its run. Only
// run_training() and the programs that call it handle it.
class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns the message of an exception without the stack trace that libtorch appends.
std::string first_line(const std::exception& error);

// An operation that a backend has started. If the result needs one more step, Pending::wait() runs
// `finish` after the work is done.
struct StartedWork {
  c10::intrusive_ptr<c10d::Work> work;
  std::function<void()> finish;
};

// One group on one transport (Gloo on CPUs, NCCL on GPUs). `root`, `to` and `from` number the
// members of the group: 0 .. size-1.
class CommBackend {
 public:
  virtual ~CommBackend() = default;
  virtual StartedWork all_reduce(Tensor tensor, bool maximum) = 0;      // in place
  virtual StartedWork reduce_scatter(Tensor output, Tensor input) = 0;  // input: size * output
  virtual StartedWork all_gather(Tensor output, Tensor input) = 0;      // output: size * input
  virtual StartedWork broadcast(Tensor tensor, int root) = 0;
  virtual StartedWork send(Tensor tensor, int to) = 0;
  virtual StartedWork receive(Tensor tensor, int from) = 0;
  // Called before the destructor, at the end of a run without errors. All members must shut down
  // their groups in the same order.
  virtual void shut_down() {}
};

// How a backend finds the other members of its group.
struct GroupAddress {
  c10::intrusive_ptr<c10d::Store> store;  // its keys have a prefix that only this group uses
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{};
  std::string interface_hint;  // the master's address; if it is loopback, Gloo uses loopback
};
// Each backend has its own file. If its library is missing, CMake picks a stub, which gives an
// error.
Result<std::unique_ptr<CommBackend>> make_gloo_backend(const GroupAddress& address);
Result<std::unique_ptr<CommBackend>> make_nccl_backend(const GroupAddress& address);

// The meeting point of all ranks, and this rank's place among them. Made once per process.
struct Rendezvous {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{300'000};
  std::string master_address = "127.0.0.1";
  bool cuda = false;
  // What this rank is doing now, for the ranks that wait for it.
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();
};
struct ServedStore {
  c10::intrusive_ptr<c10d::Store> store;
  int port = 0;
};
// Serves a store on `port` (0: any free port) for `world_size` ranks.
Result<ServedStore> serve_store(int port, int world_size, std::chrono::milliseconds timeout);
// Connects to the store that a process at this address serves.
Result<c10::intrusive_ptr<c10d::Store>> join_store(const std::string& address, int port,
                                                   int world_size,
                                                   std::chrono::milliseconds timeout);
// Returns a store inside this process, for tests with a thread per rank.
c10::intrusive_ptr<c10d::Store> local_store();
// Returns a view of the store whose keys all begin with `name`.
c10::intrusive_ptr<c10d::Store> part_of_store(const c10::intrusive_ptr<c10d::Store>& store,
                                              const std::string& name);

class Comm;

// An operation under way. wait() throws CommError. A Pending is destroyed without wait() only if
// the run ends with an error; c10d then keeps the tensors until the operation is over.
class Pending {
 public:
  Pending() = default;
  void wait();
  // Like wait(), but blocks the host on GPUs too, where wait() only orders the stream. Throws
  // CommError if the work is not done within the time limit.
  void wait_on_host();

 private:
  friend class Comm;
  const Comm* comm_ = nullptr;
  StartedWork started_;
  Operation operation_ = Operation::kAllReduce;
  std::int64_t number_ = 0;
  std::vector<Tensor> kept_;  // the operation's tensors, kept alive until it is done
};

// A group of ranks. In a group of one member, operations do not communicate: a reduction leaves the
// tensor as it is, and a gather or scatter copies it.
class Comm {
 public:
  // `name`: tp, dp, …; `members`: global ranks, including this one. Blocks until all members have
  // called this. If an attempt fails, all members must try again with another `attempt` number, so
  // that the new group does not see what the failed attempt left in the store. After an error the
  // rank is as before.
  static Result<std::unique_ptr<Comm>> create(const Rendezvous& rendezvous, std::string name,
                                              std::vector<int> members, int attempt = 0);

  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }
  int rank() const { return rank_; }  // this rank's index in members()
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
  // Waits at the ranks' meeting point until all members have called this. Members may come late
  // because they save or load a checkpoint, so the time limit is longest_time(Doing::kMeeting),
  // counted from `since`.
  void meet(std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now()) const;

  // Called at the end of a run without errors; no operation may follow. All members must shut down
  // their groups in the same order.
  void shut_down();

  std::int64_t started() const { return operations_; }  // number of operations so far
  Activity& activity() const { return *rendezvous_.activity; }
  // Returns the time that this rank has waited for this group since the last call.
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
  std::string key_;  // prefix of this group's keys in the store
  int rank_ = 0;
  int activity_group_ = 0;
  std::unique_ptr<CommBackend> backend_;
  mutable std::int64_t operations_ = 0, meetings_ = 0;
  mutable Seconds waited_;
};

}  // namespace copus
