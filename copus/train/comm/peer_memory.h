// Reads the memory of other ranks on the same machine. One call copies from any places there to any
// places here, without the help of the other process.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "copus/train/comm/comm.h"

namespace copus {

// Whether this rank may try to read the memory of `rank`. Unset: it may try for every rank.
using MayRead = std::function<bool(int rank)>;

// The constructor finds out by trying which rank can read which other rank's memory, and tells all
// ranks. A rank may be unable to: the other one may be on another machine or in another container,
// or the system may forbid it. Both ranks then know that they must use messages. While this object
// lives, processes that the same parent has started may read this process's memory.
class PeerMemory {
 public:
  // Every rank of the world calls this. `published`: numbers that the other ranks need before they
  // read, such as addresses. Throws CommError.
  PeerMemory(const Comm& world, at::Device device, const std::vector<std::int64_t>& published,
             const MayRead& may_read);
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  ~PeerMemory();

  // Whether `reader` can read the memory of `rank`; false if they are the same. All ranks get the
  // same answer.
  bool reads(int reader, int rank) const;
  // Returns what `rank` has published. REQUIRES: this rank can read the memory of `rank`.
  std::span<const std::int64_t> published(int rank) const;
  // Copies all of `from` (addresses in the memory of `rank`) into all of `to` (addresses in this
  // process), in their order. Throws std::runtime_error if any of it cannot be read. REQUIRES: both
  // have the same number of bytes, and `rank` does not change them during the call.
  void read(int rank, std::span<const iovec> from, std::span<const iovec> to) const;

 private:
  std::vector<std::int64_t> try_to_read(int rank, std::int64_t address, std::int64_t words) const;

  int rank_;
  bool opened_ = false;  // other processes may read this one while this object lives
  // A random number that proves that a reader has read the right process, then what is published.
  std::vector<std::int64_t> mine_;
  std::vector<std::int64_t> pids_;               // by rank
  std::vector<std::vector<std::int64_t>> read_;  // by rank: its mine_; empty: cannot be read
  Tensor reads_;                                 // [reader, rank], bytes: 1 if it can read
};

}  // namespace copus
