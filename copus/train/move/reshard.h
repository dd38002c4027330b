// Copies the weights and optimizer state of a live run from one layout's buckets into another's.
#pragma once

#include <cstdint>

#include "copus/train/comm/peer_memory.h"
#include "copus/train/engine/layout.h"
#include "copus/train/state/transfer.h"

namespace copus {

struct ReshardOptions {
  // The largest message in bytes, and how many messages a rank may have under way in each
  // direction. Their buffers are the memory that a move needs besides the two layouts.
  std::int64_t message_bytes = 8 << 20;
  int messages = 8;
  MayRead may_read;  // if it returns false, the state comes in messages
};

// The buffers of messages whose elements are not consecutive in memory. They are allocated before
// the transfer begins, so that no rank allocates while others wait for its messages.
struct Staging {
  Staging(at::Device device, const ReshardOptions& options);

  ReshardOptions options;
  at::Device device;
  std::vector<Tensor> sends, receives;  // a buffer for each message that may be under way
  Tensor kept;                          // a buffer for copies within a device
};

// Fills `fresh` (made with kUnset) from `old`. The rank copies what it holds already. It gets the
// rest from the ranks that the plan names: it reads a rank's memory if `peers` allows that, and
// otherwise receives messages. Every rank calls this with the same change. Returns the bytes that
// this rank has read from other ranks' memory.
// REQUIRES: every rank has published the state_addresses() of its `old` in `peers`, or no rank
// reads; and `old` stays unchanged until this call has returned on all ranks.
// Throws CommError. It throws another exception only when no other rank waits for this one.
std::int64_t reshard(const TransferPlan& plan, const LayoutChange& change, const Layout& old,
                     const Layout& fresh, const Comm& world, const PeerMemory& peers,
                     const Staging& staging);

}  // namespace copus
