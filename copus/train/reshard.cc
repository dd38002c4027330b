#include "copus/train/reshard.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

namespace copus {
namespace {

// One flat array of state: a bucket's values, or a moment of its owned part.
struct StateArray {
  Tensor flat;
  std::int64_t begin = 0;  // the bucket's element that comes first in it
};

// Where a rank keeps each tensor of the model.
class StateMap {
 public:
  StateMap(const Layout& layout, const std::vector<TensorSpec>& tensors) {
    std::unordered_map<std::string, std::size_t> index;
    for (std::size_t i = 0; i < tensors.size(); ++i) index[tensors[i].name] = i;
    places_.resize(tensors.size());
    for (const auto& parameters : layout.parameters) {
      for (const Bucket& bucket : parameters->buckets()) {
        for (const PlacedTensor& tensor : bucket.tensors) {
          places_[index.at(tensor.spec.name)] = {&bucket, &tensor};
        }
      }
    }
  }

  // The arrays that a part of this kind has numbers in, in the order in which they are sent.
  std::vector<StateArray> arrays(const StatePart& part) const {
    const Bucket& bucket = *places_[part.tensor].bucket;
    if (part.kind == StateKind::kValues) return {{bucket.values, 0}};
    std::vector<StateArray> all;
    if (bucket.values.scalar_type() != at::kFloat) {
      all.push_back({bucket.master, bucket.owned_begin});
    }
    all.push_back({bucket.moment1, bucket.owned_begin});
    all.push_back({bucket.moment2, bucket.owned_begin});
    return all;
  }
  // The part's elements in one of its arrays, block by block.
  std::vector<Tensor> views(const StatePart& part, const StateArray& array) const {
    std::vector<Tensor> blocks;
    for (const Block& block : blocks_of(*places_[part.tensor].tensor, part.stripe)) {
      blocks.push_back(array.flat.as_strided({block.rows, block.columns}, {block.stride, 1},
                                             block.offset - array.begin));
    }
    return blocks;
  }

 private:
  struct Place {
    const Bucket* bucket = nullptr;
    const PlacedTensor* tensor = nullptr;
  };
  std::vector<Place> places_;
};

// Parts of at most `limit` bytes together.
struct Message {
  std::vector<StatePart> parts;
  std::int64_t bytes = 0;
};

// Both ends cut a transfer alike.
std::vector<Message> cut(const std::vector<StatePart>& parts, bool bf16, std::int64_t limit) {
  std::vector<Message> messages;
  for (StatePart rest : parts) {
    const std::int64_t each = bytes_per_element(rest.kind, bf16);
    while (!rest.stripe.empty()) {
      if (messages.empty() || messages.back().bytes + each > limit) messages.emplace_back();
      Message& message = messages.back();
      const std::int64_t room = std::max<std::int64_t>(1, (limit - message.bytes) / each);
      StatePart now = rest;
      now.stripe.end = std::min(rest.stripe.end, rest.stripe.begin + room);
      rest.stripe.begin = now.stripe.end;
      message.bytes += now.stripe.size() * each;
      message.parts.push_back(now);
    }
  }
  return messages;
}

enum class Direction { kPack, kUnpack };

// Between a rank's arrays and a message of bytes without gaps.
void copy_message(const StateMap& state, const Message& message, const Tensor& bytes,
                  Direction direction) {
  std::int64_t at = 0;
  for (const StatePart& part : message.parts) {
    for (const StateArray& array : state.arrays(part)) {
      for (const Tensor& block : state.views(part, array)) {
        const std::int64_t size = block.numel() * block.element_size();
        const Tensor there =
            bytes.narrow(0, at, size).view(block.scalar_type()).view(block.sizes());
        if (direction == Direction::kPack) {
          there.copy_(block);
        } else {
          block.copy_(there);
        }
        at += size;
      }
    }
  }
}

// What the rank held before and holds after. Straight where both lie in one piece; through a
// message otherwise.
void keep(const std::vector<StatePart>& parts, bool bf16, const StateMap& old,
          const StateMap& fresh, at::Device device, std::int64_t message_bytes) {
  std::vector<StatePart> in_pieces;
  for (const StatePart& part : parts) {
    const std::vector<StateArray> from = old.arrays(part), to = fresh.arrays(part);
    const auto is_one = [](const std::vector<Tensor>& blocks) {
      return blocks.size() == 1 && blocks[0].size(0) == 1;
    };
    if (!is_one(old.views(part, from[0])) || !is_one(fresh.views(part, to[0]))) {
      in_pieces.push_back(part);
      continue;
    }
    for (std::size_t i = 0; i < from.size(); ++i) {
      fresh.views(part, to[i])[0].copy_(old.views(part, from[i])[0]);
    }
  }
  const Tensor buffer = at::empty({message_bytes}, at::TensorOptions(at::kByte).device(device));
  for (const Message& message : cut(in_pieces, bf16, message_bytes)) {
    copy_message(old, message, buffer, Direction::kPack);
    copy_message(fresh, message, buffer, Direction::kUnpack);
  }
}

// The messages with two peers at once: to one, from the other.
class Exchange {
 public:
  Exchange(const StateMap& old, const StateMap& fresh, const Comm& world, at::Device device,
           const ReshardOptions& options)
      : old_(old), fresh_(fresh), world_(world), device_(device), options_(options) {}

  void run(const std::vector<Message>& sends, int to, const std::vector<Message>& receives,
           int from) {
    // Of two that both send and receive, the lower one sends first: a transport that runs its
    // operations in order then never has both waiting for the other.
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
  Tensor buffer(std::int64_t bytes) const {
    return at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
  }
  void send(const Message& message, int to) {
    if (static_cast<int>(leaving_.size()) >= options_.messages) {
      leaving_.front().wait();
      leaving_.pop_front();
    }
    const Tensor bytes = buffer(message.bytes);
    copy_message(old_, message, bytes, Direction::kPack);
    leaving_.push_back(world_.start_send(bytes, to));
  }
  void receive(const Message& message, int from) {
    if (static_cast<int>(arriving_.size()) >= options_.messages) take_one();
    const Tensor bytes = buffer(message.bytes);
    arriving_.push_back({&message, bytes, world_.start_receive(bytes, from)});
  }
  void take_one() {
    arriving_.front().pending.wait();
    copy_message(fresh_, *arriving_.front().message, arriving_.front().bytes, Direction::kUnpack);
    arriving_.pop_front();
  }

  struct Arriving {
    const Message* message;
    Tensor bytes;
    Pending pending;
  };
  const StateMap& old_;
  const StateMap& fresh_;
  const Comm& world_;
  at::Device device_;
  const ReshardOptions& options_;
  std::deque<Pending> leaving_;
  std::deque<Arriving> arriving_;
};

}  // namespace

void reshard(const TransferPlan& plan, const LayoutChange& change, const Layout& old,
             const Layout& fresh, const Comm& world, at::Device device,
             const ReshardOptions& options) {
  const at::NoGradGuard no_grad;
  const std::vector<TensorSpec> tensors = model_tensors(change.model);
  const StateMap from(old, tensors), to(fresh, tensors);
  keep(plan.kept, change.bf16, from, to, device, options.message_bytes);

  const auto messages_with = [&](const std::vector<Transfer>& transfers, int peer) {
    for (const Transfer& transfer : transfers) {
      if (transfer.peer == peer) return cut(transfer.parts, change.bf16, options.message_bytes);
    }
    return std::vector<Message>();
  };
  // In round r every rank sends to the one r places on, and receives from the one r places back.
  Exchange exchange(from, to, world, device, options);
  for (int round = 1; round < world.size(); ++round) {
    const int next = (world.rank() + round) % world.size();
    const int previous = (world.rank() + world.size() - round) % world.size();
    exchange.run(messages_with(plan.sends, next), next, messages_with(plan.receives, previous),
                 previous);
  }
}

}  // namespace copus
