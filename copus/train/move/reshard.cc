#include "copus/train/move/reshard.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "copus/train/move/host_state.h"
#include "copus/train/move/state_views.h"

namespace copus {
namespace {

// The elements of a part in one of the arrays that a part of its kind has.
struct Piece {
  StatePart part;
  std::size_t array = 0;
};

// Finds the elements of pieces in a layout's buckets.
class StateMap {
 public:
  StateMap(const Layout& layout, const std::vector<TensorSpec>& tensors)
      : places_(layout.parameters, tensors) {}

  // Returns views of a piece's elements, in their order: blocks of rows.
  std::vector<Tensor> blocks(const Piece& piece) const {
    const TensorPlaces::Place& place = places_[piece.part.tensor];
    return block_views(arrays(*place.bucket, piece.part.kind)[piece.array], *place.tensor,
                       piece.part.stripe);
  }

 private:
  static std::vector<FlatArray> arrays(const Bucket& bucket, StateKind kind) {
    if (kind == StateKind::kValues) return {{bucket.values, 0}};
    std::vector<FlatArray> all;
    if (bucket.values.scalar_type() != at::kFloat) {
      all.push_back({bucket.master, bucket.owned_begin});
    }
    all.push_back({bucket.moment1, bucket.owned_begin});
    all.push_back({bucket.moment2, bucket.owned_begin});
    return all;
  }
  TensorPlaces places_;
};

struct Message {
  std::vector<Piece> pieces;
  std::int64_t bytes = 0;
};

// Cuts a transfer into messages of at most `limit` bytes. Sender and receiver cut it alike. A large
// piece is its own message, which needs no buffer if the piece is consecutive in memory; small
// pieces share messages.
std::vector<Message> cut(const std::vector<StatePart>& parts, bool bf16, std::int64_t limit) {
  constexpr std::int64_t kLarge = 256 << 10;
  std::vector<Message> messages;
  Message shared;
  const auto add = [&](Message& message, const Piece& piece, std::int64_t bytes) {
    message.pieces.push_back(piece);
    message.bytes += bytes;
  };
  for (const StatePart& part : parts) {
    const std::int64_t each = part.kind == StateKind::kValues && bf16 ? 2 : 4;
    const auto arrays = static_cast<std::size_t>(bytes_per_element(part.kind, bf16) / each);
    for (std::size_t array = 0; array < arrays; ++array) {
      Piece rest{part, array};
      while (!rest.part.stripe.empty()) {
        Piece now = rest;
        Stripe& stripe = now.part.stripe;
        stripe.end = std::min(stripe.end, stripe.begin + std::max<std::int64_t>(1, limit / each));
        rest.part.stripe.begin = stripe.end;
        const std::int64_t bytes = stripe.size() * each;
        if (bytes >= std::min(kLarge, limit)) {
          add(messages.emplace_back(), now, bytes);
          continue;
        }
        if (shared.bytes + bytes > limit) messages.push_back(std::exchange(shared, {}));
        add(shared, now, bytes);
      }
    }
  }
  if (!shared.pieces.empty()) messages.push_back(std::move(shared));
  return messages;
}

// Copies between a rank's arrays and a message, which is bytes without gaps.
void copy_message(const StateMap& state, const Message& message, const Tensor& bytes,
                  Direction direction) {
  std::int64_t at = 0;
  for (const Piece& piece : message.pieces) {
    const std::vector<Tensor> blocks = state.blocks(piece);
    std::int64_t size = 0;
    for (const Tensor& block : blocks) size += block.numel() * block.element_size();
    copy_blocks(blocks, bytes.narrow(0, at, size).view(blocks[0].scalar_type()), direction);
    at += size;
  }
}

// Copies what the rank holds under both plans, on a device. If the elements are a run on one side,
// it copies them directly, and otherwise through a buffer.
void keep_from_device(const std::vector<StatePart>& parts, bool bf16, const StateMap& old,
                      const StateMap& fresh, const Staging& staging) {
  for (const Message& message : cut(parts, bf16, staging.options.message_bytes)) {
    for (const Piece& piece : message.pieces) {
      const std::vector<Tensor> from = old.blocks(piece), to = fresh.blocks(piece);
      if (const auto run = as_run(from)) {
        copy_blocks(to, *run, Direction::kUnpack);
      } else if (const auto fresh_run = as_run(to)) {
        copy_blocks(from, *fresh_run, Direction::kPack);
      } else {
        const Tensor numbers = staging.kept.view(from[0].scalar_type());
        copy_blocks(from, numbers, Direction::kPack);
        copy_blocks(to, numbers, Direction::kUnpack);
      }
    }
  }
}

// REQUIRES: `from` and `to` have the same number of bytes.
void copy_segments(const std::vector<iovec>& from, const std::vector<iovec>& to) {
  auto target = to.begin();
  std::size_t filled = 0;  // bytes of *target
  for (const iovec& source : from) {
    for (std::size_t used = 0; used < source.iov_len;) {
      const std::size_t bytes = std::min(source.iov_len - used, target->iov_len - filled);
      std::memcpy(static_cast<char*>(target->iov_base) + filled,
                  static_cast<const char*>(source.iov_base) + used, bytes);
      used += bytes;
      filled += bytes;
      if (filled < target->iov_len) continue;
      ++target;
      filled = 0;
    }
  }
}

// Exchanges messages with two peers at once: sends to one, and receives from the other.
class Exchange {
 public:
  Exchange(const StateMap& old, const StateMap& fresh, const Comm& world, const Staging& staging)
      : old_(old), fresh_(fresh), world_(world), staging_(staging) {}

  void run(const std::vector<Message>& sends, int to, const std::vector<Message>& receives,
           int from) {
    // If two ranks send to each other, the lower one sends first. So they never wait for each
    // other, even on a transport that runs its operations in order.
    const bool send_first = world_.rank() < to;
    const std::size_t count = std::max(sends.size(), receives.size());
    for (std::size_t i = 0; i < count; ++i) {
      if (send_first && i < sends.size()) send(sends[i], to);
      if (i < receives.size()) receive(receives[i], from);
      if (!send_first && i < sends.size()) send(sends[i], to);
    }
    while (!arriving_.empty()) take_one();
    for (Pending& pending : leaving_) pending.wait();
    leaving_.clear();
  }

 private:
  // Returns a message's elements in their array, if they lie there without gaps and on the device.
  std::optional<Tensor> in_place(const StateMap& state, const Message& message) const {
    if (message.pieces.size() != 1) return std::nullopt;
    const auto run = as_run(state.blocks(message.pieces[0]));
    if (!run || run->device() != staging_.device) return std::nullopt;
    return run->view(at::kByte);
  }
  // Takes the buffers in turn. The last message in a buffer has been sent or received by then.
  static Tensor buffer(const std::vector<Tensor>& buffers, std::size_t turn, std::int64_t bytes) {
    return buffers[turn % buffers.size()].narrow(0, 0, bytes);
  }
  void send(const Message& message, int to) {
    if (leaving_.size() >= staging_.sends.size()) {
      leaving_.front().wait();
      leaving_.pop_front();
    }
    std::optional<Tensor> bytes = in_place(old_, message);
    if (!bytes) {
      bytes = buffer(staging_.sends, sent_, message.bytes);
      copy_message(old_, message, *bytes, Direction::kPack);
    }
    ++sent_;
    leaving_.push_back(world_.start_send(*bytes, to));
  }
  void receive(const Message& message, int from) {
    if (arriving_.size() >= staging_.receives.size()) take_one();
    const std::optional<Tensor> run = in_place(fresh_, message);
    const Tensor bytes = run ? *run : buffer(staging_.receives, received_, message.bytes);
    ++received_;
    arriving_.push_back({run ? nullptr : &message, bytes, world_.start_receive(bytes, from)});
  }
  void take_one() {
    Arriving& first = arriving_.front();
    first.pending.wait();
    if (first.message != nullptr) {
      copy_message(fresh_, *first.message, first.bytes, Direction::kUnpack);
    }
    arriving_.pop_front();
  }

  struct Arriving {
    const Message* message;  // null: it is received in its final place
    Tensor bytes;
    Pending pending;
  };
  const StateMap& old_;
  const StateMap& fresh_;
  const Comm& world_;
  const Staging& staging_;
  std::size_t sent_ = 0, received_ = 0;
  std::deque<Pending> leaving_;
  std::deque<Arriving> arriving_;
};

}  // namespace

Staging::Staging(at::Device where, const ReshardOptions& how) : options(how), device(where) {
  const auto buffer = [&] {
    return at::empty({how.message_bytes}, at::TensorOptions(at::kByte).device(where));
  };
  for (int i = 0; i < how.messages; ++i) {
    sends.push_back(buffer());
    receives.push_back(buffer());
  }
  kept = buffer();
}

std::int64_t reshard(const TransferPlan& plan, const LayoutChange& change, const Layout& old,
                     const Layout& fresh, const Comm& world, const PeerMemory& peers,
                     const Staging& staging) {
  const at::NoGradGuard no_grad;
  const std::vector<TensorSpec> tensors = model_tensors(change.model);
  const StateMap from(old, tensors), to(fresh, tensors);
  const int self = world.rank();

  const auto with = [](const std::vector<Transfer>& transfers, int peer) {
    return std::find_if(transfers.begin(), transfers.end(),
                        [&](const Transfer& transfer) { return transfer.peer == peer; });
  };
  const auto messages = [&](const std::vector<Transfer>& transfers, int peer, bool read) {
    const auto found = with(transfers, peer);
    if (read || found == transfers.end()) return std::vector<Message>();
    return cut(found->parts, change.bf16, staging.options.message_bytes);
  };
  // In round r every rank sends to rank self + r and receives from rank self - r (modulo the number
  // of ranks). All messages come before the reads, so no rank waits for one that fails to read.
  Exchange exchange(from, to, world, staging);
  for (int round = 1; round < world.size(); ++round) {
    const int next = (self + round) % world.size();
    const int previous = (self + world.size() - round) % world.size();
    exchange.run(messages(plan.sends, next, peers.reads(next, self)), next,
                 messages(plan.receives, previous, peers.reads(self, previous)), previous);
  }

  const HostState target(change, change.to, self, state_addresses(fresh));
  std::int64_t read = 0;
  for (int round = 1; round < world.size(); ++round) {
    const int previous = (self + world.size() - round) % world.size();
    const auto found = with(plan.receives, previous);
    if (found == plan.receives.end() || !peers.reads(self, previous)) continue;
    const HostState source(change, change.from, previous, peers.published(previous));
    peers.read(previous, source.segments(found->parts), target.segments(found->parts));
    read += found->bytes;
  }
  if (staging.device.is_cpu()) {
    const HostState source(change, change.from, self, state_addresses(old));
    copy_segments(source.segments(plan.kept), target.segments(plan.kept));
  } else {
    keep_from_device(plan.kept, change.bf16, from, to, staging);
  }
  return read;
}

}  // namespace copus
