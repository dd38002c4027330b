// The protocol, server and client of the node store. A request is an operation, a key and a value;
// its answer is a flag and a value. Numbers have the machine's byte order, because both ends are on
// the same machine. A member sends its next request only after the answer to the last one.
#include "copus/train/comm/node_store.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

namespace copus {

// A file descriptor that the destructor closes.
class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int fd = -1) : fd_(fd) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

namespace {

using Clock = std::chrono::steady_clock;
using Blob = std::vector<std::uint8_t>;

enum class Ask : std::uint32_t { kSet, kGet, kAdd, kDelete, kCount };
struct RequestHead {
  Ask ask{};
  std::uint32_t key = 0, value = 0;  // lengths in bytes
};
struct AnswerHead {
  std::uint32_t found = 0;
  std::uint32_t value = 0;  // length in bytes
};
// The longest key or value. Ranks exchange only addresses and identifiers, so a client that sends
// more than this is not a rank.
constexpr std::uint32_t kLongest = 16 << 20;

OwnedDescriptor new_socket(int more) {
  return OwnedDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | more, 0));
}

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
};
Address abstract_address(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  name.copy(address.name.sun_path + 1, sizeof address.name.sun_path - 1);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}
const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.name);
}

template <typename T>
void append(Blob& to, const T& head) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&head);
  to.insert(to.end(), bytes, bytes + sizeof head);
}

template <typename T>
T head_of(const Blob& bytes) {
  T head;
  std::memcpy(&head, bytes.data(), sizeof head);
  return head;
}

Blob bytes_of(std::int64_t number) {
  Blob bytes;
  append(bytes, number);
  return bytes;
}

std::string text_of(int error) { return std::strerror(error); }

}  // namespace

// The server's thread and its data. Only the thread uses the data; the destructor uses `wake_`.
class NodeStoreServer::Loop {
 public:
  Loop(OwnedDescriptor listener, OwnedDescriptor wake)
      : listener_(std::move(listener)), wake_(std::move(wake)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~Loop() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.fd(), &one, sizeof one);
    thread_.join();
  }

 private:
  struct Member {
    OwnedDescriptor socket;
    Blob in, out;
  };

  void serve() {
    for (;;) {
      std::vector<pollfd> polled{{wake_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
      for (const Member& member : members_) {
        const short out = member.out.empty() ? 0 : POLLOUT;
        polled.push_back({member.socket.fd(), static_cast<short>(POLLIN | out), 0});
      }
      if (::poll(polled.data(), polled.size(), -1) < 0) {
        if (errno != EINTR) rest();
        continue;
      }
      if (polled[0].revents != 0) return;
      for (std::size_t i = members_.size(); i-- > 0;) {
        const short happened = polled[i + 2].revents;
        if (happened != 0 && !attend(members_[i])) {
          members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
      if (polled[1].revents != 0) admit();
    }
  }

  void admit() {
    OwnedDescriptor socket(
        ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // The connection stays in the queue until descriptors and memory are free again.
    if (socket.fd() < 0 && errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) rest();
    ucred peer{};
    socklen_t size = sizeof peer;
    if (socket.fd() < 0 || ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        peer.uid != ::geteuid()) {
      return;
    }
    members_.push_back({std::move(socket), {}, {}});
  }

  // Sleeps before the loop tries a failed call again, so that it is not a busy loop.
  static void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  // Reads the member's requests and sends the answers. Returns false if the connection is closed or
  // the peer is not a rank.
  bool attend(Member& member) {
    std::array<std::uint8_t, 4096> part{};
    for (;;) {
      const ssize_t count = ::recv(member.socket.fd(), part.data(), part.size(), 0);
      if (count == 0) return false;
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno != EAGAIN) return false;
      if (count < 0) break;
      member.in.insert(member.in.end(), part.begin(), part.begin() + count);
      if (!answer_all(member)) return false;
    }
    while (!member.out.empty()) {
      const ssize_t count =
          ::send(member.socket.fd(), member.out.data(), member.out.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno == EAGAIN;
      member.out.erase(member.out.begin(), member.out.begin() + count);
    }
    return true;
  }

  // Answers all complete requests that have arrived. Returns false if a request is too long.
  bool answer_all(Member& member) {
    while (member.in.size() >= sizeof(RequestHead)) {
      const auto head = head_of<RequestHead>(member.in);
      if (head.key > kLongest || head.value > kLongest) return false;
      const std::size_t size = sizeof head + head.key + head.value;
      if (member.in.size() < size) break;
      const auto key_begin = member.in.begin() + sizeof head;
      const auto value_begin = key_begin + head.key;
      const std::string key(key_begin, value_begin);
      const Blob value(value_begin, value_begin + head.value);
      std::uint32_t found = 1;
      const Blob result = answer(head.ask, key, value, found);
      append(member.out, AnswerHead{found, static_cast<std::uint32_t>(result.size())});
      member.out.insert(member.out.end(), result.begin(), result.end());
      member.in.erase(member.in.begin(), member.in.begin() + static_cast<std::ptrdiff_t>(size));
    }
    return true;
  }

  // Like c10d's stores, this one keeps a sum as decimal text, so get() of a sum returns text.
  Blob answer(Ask ask, const std::string& key, const Blob& value, std::uint32_t& found) {
    const auto at = values_.find(key);
    found = at != values_.end() ? 1 : 0;
    switch (ask) {
      case Ask::kSet:
        values_[key] = value;
        return {};
      case Ask::kGet:
        return found != 0 ? at->second : Blob();
      case Ask::kAdd: {
        std::int64_t sum = value.size() == sizeof sum ? head_of<std::int64_t>(value) : 0;
        if (found != 0) {
          sum +=
              std::strtoll(std::string(at->second.begin(), at->second.end()).c_str(), nullptr, 10);
        }
        const std::string text = std::to_string(sum);
        values_[key] = Blob(text.begin(), text.end());
        return bytes_of(sum);
      }
      case Ask::kDelete:
        values_.erase(key);
        return {};
      case Ask::kCount:
        return bytes_of(static_cast<std::int64_t>(values_.size()));
    }
    return {};
  }

  OwnedDescriptor listener_, wake_;
  std::vector<Member> members_;
  std::map<std::string, Blob> values_;
  std::thread thread_;  // last, because it uses the other members
};

NodeStoreServer::NodeStoreServer(std::string name, std::unique_ptr<Loop> loop)
    : name_(std::move(name)), loop_(std::move(loop)) {}
NodeStoreServer::~NodeStoreServer() = default;

Result<std::unique_ptr<NodeStoreServer>> NodeStoreServer::start() {
  std::array<std::uint64_t, 2> random{};
  if (::getrandom(random.data(), sizeof random, 0) != sizeof random) {
    return make_error("cannot make the ranks' meeting point: no random numbers ({})",
                      text_of(errno));
  }
  std::string name = fmt::format("copus-{:016x}{:016x}", random[0], random[1]);
  OwnedDescriptor listener = new_socket(SOCK_NONBLOCK), wake(::eventfd(0, EFD_CLOEXEC));
  const Address address = abstract_address(name);
  if (listener.fd() < 0 || wake.fd() < 0 ||
      ::bind(listener.fd(), generic(address), address.size) != 0 ||
      ::listen(listener.fd(), SOMAXCONN) != 0) {
    return make_error("cannot make the ranks' meeting point ({})", text_of(errno));
  }
  auto loop = std::make_unique<Loop>(std::move(listener), std::move(wake));
  return std::unique_ptr<NodeStoreServer>(new NodeStoreServer(std::move(name), std::move(loop)));
}

namespace {

class NodeStore final : public c10d::Store {
 public:
  NodeStore(std::string name, OwnedDescriptor socket, std::chrono::milliseconds timeout)
      : c10d::Store(timeout), name_(std::move(name)), socket_(std::move(socket)) {}

#if TORCH_VERSION_MAJOR >= 2
  using c10d::Store::set;
#endif
  void set(const std::string& key, const Blob& value) override { ask(Ask::kSet, key, value); }

  Blob get(const std::string& key) override {
    Answer answer = ask(Ask::kGet, key);
    if (answer.found) return std::move(answer.value);
    wait({key}, timeout_);
    return ask(Ask::kGet, key).value;
  }

  std::int64_t add(const std::string& key, std::int64_t value) override {
    return number(ask(Ask::kAdd, key, bytes_of(value)));
  }

  bool deleteKey(const std::string& key) override { return ask(Ask::kDelete, key).found; }

  bool check(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) {
      if (!ask(Ask::kGet, key).found) return false;
    }
    return true;
  }

  std::int64_t getNumKeys() override { return number(ask(Ask::kCount, "")); }

  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }

  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    constexpr std::chrono::microseconds kLongestNap{5000};
    const auto deadline = Clock::now() + timeout;
    for (const std::string& key : keys) {
      auto nap = std::chrono::microseconds(100);
      while (!ask(Ask::kGet, key).found) {
        if (Clock::now() > deadline) {
          throw std::runtime_error(
              fmt::format("no rank has set the key {} within {} ms", key, timeout.count()));
        }
        std::this_thread::sleep_for(nap);
        nap = std::min(2 * nap, kLongestNap);
      }
    }
  }

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  c10::intrusive_ptr<c10d::Store> clone() override {
    auto joined = join_node_store(name_, timeout_);
    if (!joined) throw std::runtime_error(joined.error().message);
    return *joined;
  }
#endif

 private:
  struct Answer {
    bool found = false;
    Blob value;
  };

  static std::int64_t number(const Answer& answer) {
    return answer.value.size() == sizeof(std::int64_t) ? head_of<std::int64_t>(answer.value) : 0;
  }

  Answer ask(Ask what, const std::string& key, const Blob& value = {}) {
    Blob request;
    append(request, RequestHead{what, static_cast<std::uint32_t>(key.size()),
                                static_cast<std::uint32_t>(value.size())});
    request.insert(request.end(), key.begin(), key.end());
    request.insert(request.end(), value.begin(), value.end());
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto deadline = Clock::now() + timeout_;
    pass(request, deadline, POLLOUT);
    Blob head(sizeof(AnswerHead));
    pass(head, deadline, POLLIN);
    const auto [found, size] = head_of<AnswerHead>(head);
    Answer answer{found != 0, Blob(size)};
    pass(answer.value, deadline, POLLIN);
    return answer;
  }

  // Sends or receives all of `bytes`. A failure closes the connection, because the next bytes could
  // be the rest of an old answer.
  void pass(Blob& bytes, Clock::time_point deadline, short direction) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      pollfd polled{socket_.fd(), direction, 0};
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      const int ready =
          socket_.fd() < 0 || left.count() <= 0
              ? 0
              : ::poll(&polled, 1,
                       static_cast<int>(std::min<std::int64_t>(left.count(), 1'000'000'000)));
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) give_up("does not answer");
      const ssize_t count =
          direction == POLLOUT
              ? ::send(socket_.fd(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL)
              : ::recv(socket_.fd(), bytes.data() + done, bytes.size() - done, 0);
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count <= 0) give_up("is gone");
      done += static_cast<std::size_t>(count);
    }
  }

  [[noreturn]] void give_up(const char* why) {
    socket_ = OwnedDescriptor();
    throw std::runtime_error(fmt::format("the ranks' meeting point {}", why));
  }

  std::string name_;
  std::mutex mutex_;
  OwnedDescriptor socket_;
};

}  // namespace

Result<c10::intrusive_ptr<c10d::Store>> join_node_store(const std::string& name,
                                                        std::chrono::milliseconds timeout) {
  const Address address = abstract_address(name);
  OwnedDescriptor socket = new_socket(SOCK_NONBLOCK);
  const auto deadline = Clock::now() + timeout;
  while (socket.fd() < 0 || ::connect(socket.fd(), generic(address), address.size) != 0) {
    const int reason = errno;
    // EAGAIN: many ranks join at once, and the queue of connections is full.
    if (socket.fd() < 0 || reason != EAGAIN || Clock::now() >= deadline) {
      return make_error("cannot reach the ranks' meeting point {} ({})", name, text_of(reason));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return c10::intrusive_ptr<c10d::Store>(
      c10::make_intrusive<NodeStore>(name, std::move(socket), timeout));
}

}  // namespace copus
