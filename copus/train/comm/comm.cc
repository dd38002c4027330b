// Groups of ranks: their names, time limits, and the error message of a failed operation.
#include "copus/train/comm/comm.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "copus/base/seconds_since.h"
#include "copus/train/health/stall.h"
#include "copus/train/health/watchdog.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// After an operation fails, each surviving member writes to the store that it reached the
// operation. A member that has not done so within this time is missing.
constexpr std::chrono::milliseconds kRollCall{2000};

std::vector<int> missing_members(c10d::Store& store, const std::vector<int>& members, int self,
                                 const std::string& operation) {
  const auto key = [&](int rank) { return fmt::format("copus/stuck/{}/{}", operation, rank); };
  store.set(key(self), bytes_of("1"));
  std::vector<int> missing = members;
  const auto deadline = Clock::now() + kRollCall;
  while (!missing.empty() && Clock::now() < deadline) {
    std::erase_if(missing, [&](int rank) { return store.check({key(rank)}); });
    if (!missing.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return missing;
}

// Checks the port before c10d does, because c10d would print its own report of the failure.
bool port_is_free(int port) {
  const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return true;
  const int yes = 1;
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  const bool bound = bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const bool taken = !bound && errno == EADDRINUSE;
  close(probe);
  return !taken;
}

}  // namespace

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

Result<ServedStore> serve_store(int port, int world_size, std::chrono::milliseconds timeout) {
  if (port != 0 && !port_is_free(port)) {
    return field_error("port", "got {}, which is in use; want a free port to meet on", port);
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = true;
  options.numWorkers = static_cast<std::size_t>(world_size);
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    const int bound = store->getPort();
    return ServedStore{store, bound};
  } catch (const std::exception& error) {
    return field_error("port", "got {}; want a free port to meet on ({})", port, first_line(error));
  }
}

Result<c10::intrusive_ptr<c10d::Store>> join_store(const std::string& address, int port,
                                                   int world_size,
                                                   std::chrono::milliseconds timeout) {
  using Joined = Result<c10::intrusive_ptr<c10d::Store>>;
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.numWorkers = static_cast<std::size_t>(world_size);
  options.waitWorkers = false;
  options.timeout = timeout;
  // If another program listens on the port and never answers, newer versions of libtorch retry
  // without end. So a thread connects, and is left behind if it does not return in time.
  std::promise<Joined> promise;
  std::future<Joined> joined = promise.get_future();
  std::thread([address, options, promise = std::move(promise)]() mutable {
    try {
      promise.set_value(
          c10::intrusive_ptr<c10d::Store>(c10::make_intrusive<c10d::TCPStore>(address, options)));
    } catch (const std::exception& error) {
      promise.set_value(make_error("cannot reach the ranks' meeting point at {}:{} ({})", address,
                                   options.port, first_line(error)));
    }
  }).detach();
  if (joined.wait_for(2 * timeout) != std::future_status::ready) {
    return make_error(
        "cannot reach the ranks' meeting point at {}:{} (the process that listens there does not "
        "answer)",
        address, port);
  }
  return joined.get();
}

c10::intrusive_ptr<c10d::Store> local_store() { return c10::make_intrusive<c10d::HashStore>(); }

c10::intrusive_ptr<c10d::Store> part_of_store(const c10::intrusive_ptr<c10d::Store>& store,
                                              const std::string& name) {
  return c10::make_intrusive<c10d::PrefixStore>(name, store);
}

void Pending::wait() {
  if (comm_ == nullptr) return;
  const Comm* comm = std::exchange(comm_, nullptr);
  const Activity::Scope waits(comm->activity(), operation_, comm->activity_group_, number_);
  const auto begin = Clock::now();
  try {
    started_.work->wait();
    if (started_.finish) started_.finish();
  } catch (const std::exception& error) {
    comm->fail(operation_, number_, first_line(error));
  }
  comm->waited_ += seconds_since(begin);
  started_ = {};
  kept_.clear();
}

// A GPU's stream runs in order. So if work that was started earlier on any group hangs, this wait
// reaches its time limit too.
void Pending::wait_on_host() {
  if (comm_ == nullptr) return;
  const Comm& comm = *comm_;
  const auto work = started_.work;
  const auto deadline = Clock::now() + comm.rendezvous_.timeout;
  const Activity::Scope waits(comm.activity(), operation_, comm.activity_group_, number_);
  wait();
  if (!comm.rendezvous_.cuda) return;
  while (!work->isCompleted()) {
    if (Clock::now() > deadline) comm.fail(operation_, number_, "timed out");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  // For c10d, work that has failed is completed too.
  if (const std::exception_ptr failure = work->exception()) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      comm.fail(operation_, number_, first_line(error));
    }
  }
}

Result<std::unique_ptr<Comm>> Comm::create(const Rendezvous& rendezvous, std::string name,
                                           std::vector<int> members, int attempt) {
  std::unique_ptr<Comm> comm(new Comm);
  comm->rendezvous_ = rendezvous;
  comm->name_ = std::move(name);
  comm->members_ = std::move(members);
  const auto self = std::find(comm->members_.begin(), comm->members_.end(), rendezvous.rank);
  COPUS_CHECK(self != comm->members_.end());
  comm->rank_ = static_cast<int>(self - comm->members_.begin());
  if (comm->size() == 1) return comm;
  const std::string ranks = fmt::format("{}", fmt::join(comm->members_, ","));
  comm->key_ = fmt::format("{}/{}/{}", comm->name_, ranks, attempt);
  comm->activity_group_ =
      comm->activity().add_group(fmt::format("{} (ranks {})", comm->name_, ranks));
  const Activity::Scope connects(comm->activity(), Operation::kConnect, comm->activity_group_, 0);
  GroupAddress address;
  address.store =
      c10::make_intrusive<c10d::PrefixStore>("copus/group/" + comm->key_, rendezvous.store);
  address.rank = comm->rank_;
  address.size = comm->size();
  address.timeout = rendezvous.timeout;
  address.interface_hint = rendezvous.master_address;
  try {
    auto backend = rendezvous.cuda ? make_nccl_backend(address) : make_gloo_backend(address);
    if (!backend) return backend.error();
    comm->backend_ = std::move(backend).value();
    if (rendezvous.cuda) comm->connect();
  } catch (const std::exception& error) {
    try {
      comm->fail(Operation::kConnect, 0, first_line(error));
    } catch (const CommError& named) {
      comm->activity().over(false);  // the caller decides whether the run is over
      return Error{named.what()};
    }
  }
  return comm;
}

// Opens the connections in both directions. NCCL connects in the first operation, so in a pipeline
// two neighbours whose first operation is a receive would wait for each other.
void Comm::connect() const {
  barrier();
  if (size() != 2) return;
  const Tensor token = at::zeros({1}, at::TensorOptions().device(at::kCUDA));
  if (rank_ == 0) {
    start_send(token, 1).wait();
    start_receive(token, 1).wait_on_host();
  } else {
    start_receive(token, 0).wait();
    start_send(token, 0).wait_on_host();
  }
}

namespace {

// Runs `ask`, which queries the store, in a thread. The network failure may have cut off the store
// too, and its calls have no time limit of their own. Returns nothing if there is no answer within
// `limit`; the thread is then left behind.
template <typename T>
std::optional<T> answer_in_time(std::chrono::duration<double> limit, std::function<T()> ask) {
  auto answer = std::make_shared<std::promise<T>>();
  std::future<T> found = answer->get_future();
  std::thread([answer, ask = std::move(ask)] {
    try {
      answer->set_value(ask());
    } catch (...) {
      answer->set_exception(std::current_exception());
    }
  }).detach();
  if (found.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return found.get();
}

}  // namespace

void Comm::fail(Operation operation, std::int64_t number, const std::string& why) const {
  Activity& own = activity();
  own.over();
  const std::vector<int> watched = ranks_to_watch(rendezvous_.world_size, members_);
  const auto before = read_activities(own.folder(), watched);
  std::string who;
  try {
    const std::string key = fmt::format("{}/{}/{}", key_, to_string(operation), number);
    const auto missing = answer_in_time<std::vector<int>>(
        kRollCall + std::chrono::seconds(1),
        [store = rendezvous_.store, members = members_, self = rendezvous_.rank, key] {
          return missing_members(*store, members, self, key);
        });
    if (!missing) {
      who =
          "no answer from the ranks' meeting point: rank 0, or the launcher that serves it, is out "
          "of reach";
    } else {
      who = missing->empty() ? "every member reached it"
                             : fmt::format("missing: rank {}", fmt::join(*missing, ", "));
    }
  } catch (const std::exception& error) {
    who = fmt::format("the missing ranks are not known: the ranks' meeting point is gone ({})",
                      first_line(error));
  }
  // The rank that keeps all others waiting need not be a member of this group.
  const Seconds half = to_seconds(rendezvous_.timeout) / 2;
  const std::string stalled =
      to_text(stalled_ranks(before, read_activities(own.folder(), watched), half));
  if (!stalled.empty()) who += "; " + stalled;
  throw CommError(fmt::format("{} number {} in group {} (ranks {}) failed; {}; {}",
                              to_string(operation), number, name_, fmt::join(members_, ","), who,
                              why));
}

// An operation that fails at its start (because a connection is already closed) gives the same
// error message as one that fails later.
Pending Comm::start(Operation operation, std::vector<Tensor> kept,
                    const std::function<StartedWork()>& call) const {
  Pending pending;
  pending.operation_ = operation;
  pending.number_ = ++operations_;
  pending.kept_ = std::move(kept);
  const auto begin = Clock::now();
  try {
    pending.started_ = call();
    waited_ += seconds_since(begin);
  } catch (const std::exception& error) {
    fail(operation, pending.number_, first_line(error));
  }
  pending.comm_ = this;
  return pending;
}

Pending Comm::start_all_reduce(Tensor tensor) const {
  if (size() == 1) return {};
  return start(Operation::kAllReduce, {tensor},
               [&] { return backend_->all_reduce(tensor, false); });
}

void Comm::all_reduce_max(Tensor tensor) const {
  if (size() == 1) return;
  start(Operation::kAllReduce, {tensor}, [&] { return backend_->all_reduce(tensor, true); }).wait();
}

Pending Comm::start_reduce_scatter(Tensor output, Tensor input) const {
  if (size() == 1) {
    if (output.data_ptr() != input.data_ptr()) output.copy_(input.view_as(output));
    return {};
  }
  return start(Operation::kReduceScatter, {output, input},
               [&] { return backend_->reduce_scatter(output, input); });
}

void Comm::reduce_scatter(Tensor output, Tensor input) const {
  start_reduce_scatter(std::move(output), std::move(input)).wait();
}

Pending Comm::start_all_gather(Tensor output, Tensor input) const {
  if (size() == 1) {
    if (output.data_ptr() != input.data_ptr()) output.copy_(input.view_as(output));
    return {};
  }
  return start(Operation::kAllGather, {output, input},
               [&] { return backend_->all_gather(output, input); });
}

void Comm::all_gather(Tensor output, Tensor input) const {
  start_all_gather(std::move(output), std::move(input)).wait();
}

Pending Comm::start_send(Tensor tensor, int to) const {
  COPUS_CHECK(size() > 1);
  return start(Operation::kSend, {tensor}, [&] { return backend_->send(tensor, to); });
}

Pending Comm::start_receive(Tensor tensor, int from) const {
  COPUS_CHECK(size() > 1);
  return start(Operation::kReceive, {tensor}, [&] { return backend_->receive(tensor, from); });
}

Pending Comm::start_broadcast(Tensor tensor, int root) const {
  if (size() == 1) return {};
  return start(Operation::kBroadcast, {tensor}, [&] { return backend_->broadcast(tensor, root); });
}

void Comm::broadcast(Tensor tensor, int root) const {
  start_broadcast(std::move(tensor), root).wait();
}

void Comm::barrier() const {
  const Tensor token =
      at::zeros({1}, at::TensorOptions().device(rendezvous_.cuda ? at::kCUDA : at::kCPU));
  start_all_reduce(token).wait_on_host();
}

void Comm::meet(Clock::time_point since) const {
  if (size() == 1) return;
  const std::int64_t number = ++meetings_;
  const Activity::Scope meets(activity(), Doing::kMeeting, number);
  const auto key_of = [&](std::int64_t n) { return fmt::format("copus/meeting/{}/{}", key_, n); };
  const auto deadline =
      since + to_duration(longest_time(Doing::kMeeting, to_seconds(rendezvous_.timeout)));
  const auto everyone_came = [key = key_of(number), before = key_of(number - 1), all = size(),
                              store = rendezvous_.store, deadline]() -> bool {
    auto nap = std::chrono::microseconds(100);
    for (std::int64_t came = store->add(key, 1); came < all; came = store->add(key, 0)) {
      if (Clock::now() > deadline) return false;
      std::this_thread::sleep_for(nap);
      // One store answers all ranks, so each rank asks less often in a large group: a few thousand
      // queries per second in all.
      nap = std::min(2 * nap, std::chrono::microseconds(std::max(20'000, 200 * all)));
    }
    store->deleteKey(before);  // all members are in this meeting, so all have left the last one
    return true;
  };
  std::optional<bool> came;
  try {
    came = answer_in_time<bool>(deadline - Clock::now() + std::chrono::seconds(1), everyone_came);
  } catch (const std::exception& error) {
    fail(Operation::kMeet, number, first_line(error));
  }
  if (!came || !*came) fail(Operation::kMeet, number, "timed out");
}

void Comm::shut_down() {
  if (backend_) backend_->shut_down();
}

Seconds Comm::take_waited() const { return std::exchange(waited_, Seconds()); }

}  // namespace copus
