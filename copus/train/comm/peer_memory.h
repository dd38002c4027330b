// Memory of ranks that are processes of the same machine, read without their help: one copy, from
// any places to any places.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "copus/train/comm/comm.h"

namespace copus {

// Whether this rank may try to read a rank's memory; unset: everyone's.
using MayRead = std::function<bool(int rank)>;

// Who reads whom is found out by trying, once, and known to all: where one rank cannot read
// another's memory (another machine, another container, a system that forbids it) both know that
// messages must do. As long as this lives the ranks that the same process has started may read this
// one's memory.
class PeerMemory {
 public:
  // Every rank of the world calls this. `published`: what the others want to know before they read,
  // the addresses for instance. Throws CommError.
  PeerMemory(const Comm& world, at::Device device, const std::vector<std::int64_t>& published,
             const MayRead& may_read);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory();

  // The same answer on every rank. No rank reads itself.
  bool reads(int reader, int rank) const;
  // REQUIRES: this rank reads that one.
  std::span<const std::int64_t> published(int rank) const;
  // All of `from`, addresses there, into all of `to`, addresses here, in their order. Throws
  // std::runtime_error where any of it cannot be read. REQUIRES: as many bytes in both; that rank
  // does not change them meanwhile.
  void read(int rank, std::span<const iovec> from, std::span<const iovec> to) const;

 private:
  std::vector<std::int64_t> try_to_read(int rank, std::int64_t address, std::int64_t words) const;

  int rank_;
  bool opened_ = false;             // others may read this process as long as this lives
  std::vector<std::int64_t> mine_;  // a number that proves that it is this, then what is published
  std::vector<std::int64_t> pids_;  // by rank
  std::vector<std::vector<std::int64_t>> read_;  // by rank: as theirs; empty: not readable
  Tensor reads_;                                 // bytes [reader, rank]
};

}  // namespace copus
