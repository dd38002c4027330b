#include "copus/train/comm/peer_memory.h"

#include <limits.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>

#include "copus/base/check.h"
#include "copus/base/hash.h"

namespace copus {
namespace {

// Returns a number that is the same for all processes that share process ids: those with the same
// boot, host name and PID namespace. 0: not known.
std::int64_t process_space() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 256> host{}, space{};
  if (boot.empty() || ::gethostname(host.data(), host.size() - 1) != 0 ||
      ::readlink("/proc/self/ns/pid", space.data(), space.size() - 1) < 0) {
    return 0;
  }
  return static_cast<std::int64_t>(hash_of(boot + "/" + host.data() + "/" + space.data()) | 1U);
}

std::int64_t random_word() {
  std::random_device random;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(random()) << 32U | random());
}

// With Yama, a security module of Linux, only a process's ancestors may trace it or read its
// memory. A process can also allow one other process and all descendants of that one. This process
// allows its parent, the launcher, whose descendants are the ranks. Without Yama the call fails and
// is not needed.
void let_siblings_read() {
  if (const pid_t parent = ::getppid(); parent > 1) {
    ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(parent), 0, 0, 0);
  }
}
void let_nobody_read() { ::prctl(PR_SET_PTRACER, 0, 0, 0, 0); }

// A list of segments that is consumed from its front.
class Segments {
 public:
  explicit Segments(std::span<const iovec> all) : left_(all) {}

  bool empty() const { return left_.empty(); }
  // Returns the bytes left in the first IOV_MAX segments, the most that one system call takes.
  std::size_t next_bytes() const {
    std::size_t bytes = 0;
    for (const iovec& each : left_.first(std::min<std::size_t>(left_.size(), IOV_MAX))) {
      bytes += each.iov_len;
    }
    return bytes - used_;
  }
  // Removes `bytes` from the front and puts their segments into `taken`. REQUIRES: bytes <=
  // next_bytes().
  void take(std::size_t bytes, std::vector<iovec>& taken) {
    taken.clear();
    while (bytes > 0) {
      const iovec& first = left_.front();
      const std::size_t now = std::min(bytes, first.iov_len - used_);
      taken.push_back({static_cast<char*>(first.iov_base) + used_, now});
      used_ += now;
      bytes -= now;
      if (used_ < first.iov_len) continue;
      left_ = left_.subspan(1);
      used_ = 0;
    }
  }

 private:
  std::span<const iovec> left_;
  std::size_t used_ = 0;  // bytes of the first segment that are consumed
};

// Copies memory of another process into this one. Returns "", or why not all of it was read.
std::string read_process(std::int64_t pid, std::span<const iovec> from, std::span<const iovec> to) {
  constexpr std::size_t kMostBytes = 1 << 30;  // half of the system's limit for one call
  Segments theirs(from), ours(to);
  std::vector<iovec> source, target;
  while (!theirs.empty()) {
    const std::size_t bytes = std::min({kMostBytes, theirs.next_bytes(), ours.next_bytes()});
    if (bytes == 0) break;  // only empty segments are left
    theirs.take(bytes, source);
    ours.take(bytes, target);
    const ssize_t done = ::process_vm_readv(static_cast<pid_t>(pid), target.data(), target.size(),
                                            source.data(), source.size(), 0);
    if (done < 0) return std::strerror(errno);
    if (static_cast<std::size_t>(done) != bytes) {
      return fmt::format("{} of {} bytes could be read", done, bytes);
    }
  }
  return "";
}

std::size_t total_bytes(std::span<const iovec> segments) {
  std::size_t bytes = 0;
  for (const iovec& each : segments) bytes += each.iov_len;
  return bytes;
}

}  // namespace

PeerMemory::PeerMemory(const Comm& world, at::Device device,
                       const std::vector<std::int64_t>& published, const MayRead& may_read)
    : rank_(world.rank()),
      mine_{random_word()},
      pids_(static_cast<std::size_t>(world.size())),
      read_(static_cast<std::size_t>(world.size())) {
  mine_.insert(mine_.end(), published.begin(), published.end());
  for (int rank = 0; rank < world.size(); ++rank) {
    opened_ = opened_ || (rank != rank_ && (!may_read || may_read(rank)));
  }
  if (opened_) let_siblings_read();
  const auto gather = [&](const Tensor& row) {
    const Tensor there = row.to(device);
    const Tensor all = at::zeros({world.size(), row.numel()}, there.options());
    world.all_gather(all, there);
    return all.cpu();
  };

  enum Word : std::int64_t { kSpace, kPid, kAddress, kWords, kProof, kCount };
  const Tensor card = at::zeros({kCount}, at::kLong);
  auto* words = card.data_ptr<std::int64_t>();
  words[kSpace] = process_space();
  words[kPid] = ::getpid();
  words[kAddress] = reinterpret_cast<std::intptr_t>(mine_.data());
  words[kWords] = static_cast<std::int64_t>(mine_.size());
  words[kProof] = mine_[0];
  const Tensor cards = gather(card);

  const Tensor row = at::zeros({world.size()}, at::kByte);
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const auto* theirs = cards[rank].data_ptr<std::int64_t>();
    pids_[i] = theirs[kPid];
    const bool near = words[kSpace] != 0 && theirs[kSpace] == words[kSpace];
    if (rank == rank_ || !near || (may_read && !may_read(rank))) continue;
    read_[i] = try_to_read(rank, theirs[kAddress], theirs[kWords]);
    if (!read_[i].empty() && read_[i][0] != theirs[kProof]) read_[i].clear();
    row.data_ptr<std::uint8_t>()[rank] = read_[i].empty() ? 0 : 1;
  }
  reads_ = gather(row);
}

PeerMemory::~PeerMemory() {
  if (opened_) let_nobody_read();
}

std::vector<std::int64_t> PeerMemory::try_to_read(int rank, std::int64_t address,
                                                  std::int64_t words) const {
  std::vector<std::int64_t> there(static_cast<std::size_t>(words));
  const std::size_t bytes = there.size() * sizeof there[0];
  const iovec from{reinterpret_cast<void*>(address), bytes}, to{there.data(), bytes};
  const std::string trouble =
      read_process(pids_[static_cast<std::size_t>(rank)], {&from, 1}, {&to, 1});
  return trouble.empty() ? there : std::vector<std::int64_t>();
}

bool PeerMemory::reads(int reader, int rank) const {
  return reads_.data_ptr<std::uint8_t>()[reader * reads_.size(1) + rank] != 0;
}

std::span<const std::int64_t> PeerMemory::published(int rank) const {
  const std::vector<std::int64_t>& words = read_[static_cast<std::size_t>(rank)];
  COPUS_CHECK(!words.empty());
  return std::span(words).subspan(1);
}

void PeerMemory::read(int rank, std::span<const iovec> from, std::span<const iovec> to) const {
  COPUS_CHECK(reads(rank_, rank) && total_bytes(from) == total_bytes(to));
  const std::string trouble = read_process(pids_[static_cast<std::size_t>(rank)], from, to);
  if (!trouble.empty()) {
    throw std::runtime_error(fmt::format("cannot read rank {}'s memory: {}", rank, trouble));
  }
}

}  // namespace copus
