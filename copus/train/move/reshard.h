// Reshard: weights and optimizer state of a live run, from one layout's buckets into another's.
#pragma once

#include <cstdint>

#include "copus/train/comm/peer_memory.h"
#include "copus/train/engine/layout.h"
#include "copus/train/state/transfer.h"

namespace copus {

struct ReshardOptions {
  // Bytes of one message, and messages of a rank that may be on their way at once: what a move
  // takes beside the two layouts' own memory.
  std::int64_t message_bytes = 8 << 20;
  int messages = 8;
  MayRead may_read;  // where it returns false, messages carry the state
};

// The memory that messages pass through where they cannot go straight from and to where they lie.
// Taken before a move begins: nothing is allocated while others wait for messages.
struct Staging {
  Staging(at::Device device, const ReshardOptions& options);

  ReshardOptions options;
  at::Device device;
  std::vector<Tensor> sends, receives;  // one for each message that may be on its way
  Tensor kept;
};

// Fills `fresh` (kUnset) from `old`: what the rank holds already is copied, the rest comes straight
// from whoever the plan says: read from its memory, `old` as state_addresses() on every rank, where
// `peers` says so; in messages otherwise. `old` is only read, and stays until all ranks are
// through. Every rank calls this with the same change. Returns the bytes that this rank has read
// from others' memory. Throws CommError; anything else only when nobody waits for this rank.
std::int64_t reshard(const TransferPlan& plan, const LayoutChange& change, const Layout& old,
                     const Layout& fresh, const Comm& world, const PeerMemory& peers,
                     const Staging& staging);

}  // namespace copus
