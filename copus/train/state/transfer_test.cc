// The law of a change of layout: executing the plan turns the ranks' old state exactly into every
// rank's new state, and no plan could move fewer bytes.
#include "copus/train/state/transfer.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>

#include "copus/train/state/test_layouts.h"

namespace copus {
namespace {

using Numbers = std::vector<double>;
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// One rank's buckets. Each number is distinct and tells its array, tensor and element. A BF16 value
// is its master with the sign changed, so that it can be computed from the master.
struct StoredBucket {
  BucketPlacement placement;
  std::vector<std::size_t> tensors;  // as model_tensors() counts them
  Numbers values;                    // of the whole bucket
  std::vector<Numbers> optimizer;  // of the owned part: the moments; in BF16 the master before them
  friend bool operator==(const StoredBucket& a, const StoredBucket& b) {
    return a.values == b.values && a.optimizer == b.optimizer;
  }
};
using Storage = std::vector<StoredBucket>;  // of one rank

Storage empty_storage(const LayoutChange& change, const ParallelPlan& plan, std::int64_t rank) {
  std::map<std::string, std::size_t> indices;
  for (const TensorSpec& tensor : model_tensors(change.model)) {
    indices.emplace(tensor.name, indices.size());
  }
  Storage storage;
  for (BucketPlacement& p : place_rank(change.model, plan, rank, change.bucket_elements)) {
    StoredBucket bucket;
    for (const PlacedTensor& tensor : p.tensors) {
      bucket.tensors.push_back(indices.at(tensor.spec.name));
    }
    bucket.values.resize(at(p.padded));
    bucket.optimizer.assign(change.bf16 ? 3 : 2, Numbers(at(p.owned_length)));
    bucket.placement = std::move(p);
    storage.push_back(std::move(bucket));
  }
  return storage;
}

Storage full_storage(const LayoutChange& change, const ParallelPlan& plan, std::int64_t rank) {
  Storage storage = empty_storage(change, plan, rank);
  for (StoredBucket& bucket : storage) {
    for (std::size_t t = 0; t < bucket.tensors.size(); ++t) {
      const PlacedTensor& tensor = bucket.placement.tensors[t];
      for (std::int64_t i = 0; i < tensor.size; ++i) {
        const std::int64_t element = whole_element(tensor, i);
        if (element == kPadding) continue;
        const double number =
            1e7 * static_cast<double>(bucket.tensors[t] + 1) + static_cast<double>(element);
        bucket.values[at(tensor.offset + i)] = change.bf16 ? -number : number;
        const std::int64_t owned = tensor.offset + i - bucket.placement.owned_begin;
        if (owned < 0 || owned >= bucket.placement.owned_length) continue;
        for (std::size_t array = 0; array < bucket.optimizer.size(); ++array) {
          const double shift = 0.25 * static_cast<double>(change.bf16 ? array : array + 1);
          bucket.optimizer[array][at(owned)] = number + shift;
        }
      }
    }
  }
  return storage;
}

// Visits every number of a part, in the order of a message.
template <typename Visit>
void for_each_number(Storage& storage, const StatePart& part, Visit visit) {
  const bool is_values = part.kind == StateKind::kValues;
  for (StoredBucket& bucket : storage) {
    const auto found = std::find(bucket.tensors.begin(), bucket.tensors.end(), part.tensor);
    if (found == bucket.tensors.end()) continue;
    const PlacedTensor& tensor = bucket.placement.tensors[at(found - bucket.tensors.begin())];
    const std::int64_t origin = is_values ? 0 : bucket.placement.owned_begin;
    for (std::size_t array = 0; array < (is_values ? 1 : bucket.optimizer.size()); ++array) {
      Numbers& numbers = is_values ? bucket.values : bucket.optimizer[array];
      for (const Block& block : blocks_of(tensor, part.stripe)) {
        for (std::int64_t i = 0; i < block.rows * block.columns; ++i) {
          visit(numbers.at(
              at(block.offset - origin + i / block.columns * block.stride + i % block.columns)));
        }
      }
    }
    return;
  }
  ADD_FAILURE() << "the rank has nothing of tensor " << part.tensor;
}

Numbers pack(Storage& storage, const std::vector<StatePart>& parts) {
  Numbers message;
  for (const StatePart& part : parts) {
    for_each_number(storage, part, [&](double number) { message.push_back(number); });
  }
  return message;
}

void unpack(Storage& storage, const std::vector<StatePart>& parts, const Numbers& message) {
  std::size_t next = 0;
  for (const StatePart& part : parts) {
    for_each_number(storage, part, [&](double& number) {
      EXPECT_EQ(number, 0) << "brought twice";
      number = message.at(next++);
    });
  }
  EXPECT_EQ(next, message.size());
}

std::vector<TransferPlan> plans_of_all(const LayoutChange& change) {
  std::vector<TransferPlan> plans;
  plans.reserve(at(change.from.gpus()));
  for (int rank = 0; rank < change.from.gpus(); ++rank)
    plans.push_back(plan_transfer(change, rank));
  return plans;
}

// Every rank's storage at the new layout, made from the storage at the old layout.
std::vector<Storage> execute(const LayoutChange& change, std::vector<Storage> old) {
  const std::vector<TransferPlan> plans = plans_of_all(change);
  std::map<std::pair<int, int>, std::pair<std::vector<StatePart>, Numbers>> messages;
  std::vector<Storage> result;
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    for (const Transfer& send : plans[at(rank)].sends) {
      messages[{rank, send.peer}] = {send.parts, pack(old[at(rank)], send.parts)};
    }
  }
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    const TransferPlan& plan = plans[at(rank)];
    Storage storage = empty_storage(change, change.to, rank);
    unpack(storage, plan.kept, pack(old[at(rank)], plan.kept));
    for (const Transfer& receive : plan.receives) {
      const auto& [parts, numbers] = messages.at({receive.peer, rank});
      EXPECT_EQ(receive.parts, parts) << "both ends must know the same order";
      unpack(storage, receive.parts, numbers);
      messages.erase({receive.peer, rank});
    }
    for (StoredBucket& bucket : storage) {
      if (!change.bf16) continue;
      std::transform(bucket.optimizer[0].begin(), bucket.optimizer[0].end(),
                     bucket.values.begin() + bucket.placement.owned_begin, std::negate<>());
    }
    result.push_back(std::move(storage));
  }
  EXPECT_TRUE(messages.empty()) << "sent and not received";
  return result;
}

// Which elements of every tensor a rank holds and owns.
struct Bitmaps {
  std::vector<bool> held, owned;
};
Bitmaps bitmaps(const LayoutChange& change, const ParallelPlan& plan, std::int64_t rank) {
  std::map<std::string, std::int64_t> first;
  std::int64_t total = 0;
  for (const TensorSpec& tensor : model_tensors(change.model)) {
    first[tensor.name] = total;
    total += element_count(tensor.shape);
  }
  Bitmaps maps{std::vector<bool>(at(total)), std::vector<bool>(at(total))};
  for (const BucketPlacement& bucket :
       place_rank(change.model, plan, rank, change.bucket_elements)) {
    for (const PlacedTensor& tensor : bucket.tensors) {
      for (std::int64_t i = 0; i < tensor.size; ++i) {
        const std::int64_t element = whole_element(tensor, i);
        if (element == kPadding) continue;
        const std::int64_t place = tensor.offset + i - bucket.owned_begin;
        maps.held[at(first[tensor.spec.name] + element)] = true;
        if (place >= 0 && place < bucket.owned_length) {
          maps.owned[at(first[tensor.spec.name] + element)] = true;
        }
      }
    }
  }
  return maps;
}

// The bytes that a rank needs and does not have. `between_nodes` counts those that no rank of its
// node has either.
struct Minimum {
  std::vector<std::int64_t> received;  // by rank
  std::int64_t between_nodes = 0;
};
Minimum minimum(const LayoutChange& change) {
  const std::int64_t world = change.from.gpus();
  std::vector<Bitmaps> old;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    old.push_back(bitmaps(change, change.from, rank));
  }
  Minimum result;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    const Bitmaps wanted = bitmaps(change, change.to, rank);
    const std::int64_t node = rank / change.ranks_per_node * change.ranks_per_node;
    const std::int64_t node_end = std::min<std::int64_t>(world, node + change.ranks_per_node);
    std::int64_t bytes = 0;
    const auto need = [&](std::size_t i, std::vector<bool> Bitmaps::*kind, std::int64_t size) {
      if ((old[at(rank)].*kind)[i]) return;
      bytes += size;
      for (std::int64_t other = node; other < node_end; ++other) {
        if ((old[at(other)].*kind)[i]) return;
      }
      result.between_nodes += size;
    };
    for (std::size_t i = 0; i < wanted.held.size(); ++i) {
      if (wanted.owned[i]) need(i, &Bitmaps::owned, change.bf16 ? 12 : 8);
      const bool from_master = change.bf16 && wanted.owned[i];
      if (wanted.held[i] && !from_master) need(i, &Bitmaps::held, change.bf16 ? 2 : 4);
    }
    result.received.push_back(bytes);
  }
  return result;
}

std::string describe(const LayoutChange& change) {
  return fmt::format("{}{} {} -> {} {} buckets of {}, {} ranks a node", change.model.name,
                     change.model.tied_embeddings ? " tied" : "", short_name(change.from),
                     short_name(change.to), change.bf16 ? "bf16" : "fp32", change.bucket_elements,
                     change.ranks_per_node);
}

LayoutChange random_change(std::mt19937& random) {
  const std::vector<ModelSpec> models = small_models();
  LayoutChange change;
  change.model = models[random() % models.size()];
  // Tensors this small can have an owned part of less than a row.
  if (random() % 4 == 0) change.model.hidden = 4;
  const std::int64_t world = std::vector<std::int64_t>{1, 2, 3, 4, 6, 8, 8, 8, 8}[random() % 9];
  change.from = random_plan(random, change.model, world, kSeqLen, kGlobalBatch);
  change.to = random_plan(random, change.model, world, kSeqLen, kGlobalBatch);
  change.bucket_elements = std::vector<std::int64_t>{1, 150, 600, 1 << 20}[random() % 4];
  change.bf16 = random() % 2 == 1;
  change.ranks_per_node = 1 << random() % 4;
  return change;
}

constexpr int kPairs = 300;

TEST(Transfer, MakesEveryRanksNewStateAndBackAgainTheOld) {
  std::mt19937 random(1);
  for (int pair = 0; pair < kPairs; ++pair) {
    LayoutChange change = random_change(random);
    SCOPED_TRACE(describe(change));
    std::vector<Storage> old, expected;
    for (std::int64_t rank = 0; rank < change.from.gpus(); ++rank) {
      old.push_back(full_storage(change, change.from, rank));
      expected.push_back(full_storage(change, change.to, rank));
    }
    const std::vector<Storage> changed = execute(change, old);
    ASSERT_TRUE(changed == expected);
    std::swap(change.from, change.to);
    ASSERT_TRUE(execute(change, changed) == old);
  }
}

TEST(Transfer, MovesTheFewestBytesThatTheLayoutsAllowAndFewBetweenNodes) {
  std::mt19937 random(2);
  for (int pair = 0; pair < kPairs; ++pair) {
    const LayoutChange change = random_change(random);
    SCOPED_TRACE(describe(change));
    const Minimum fewest = minimum(change);
    const std::vector<TransferPlan> plans = plans_of_all(change);
    std::int64_t between_nodes = 0;
    std::vector<std::int64_t> sent, received;
    for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
      sent.push_back(0);
      received.push_back(0);
      for (const Transfer& send : plans[at(rank)].sends) {
        EXPECT_NE(send.peer, rank);
        EXPECT_TRUE(std::is_partitioned(
            send.parts.begin(), send.parts.end(),
            [](const StatePart& part) { return part.kind == StateKind::kOptimizer; }));
        sent.back() += send.bytes;
      }
      for (const Transfer& receive : plans[at(rank)].receives) {
        received.back() += receive.bytes;
        const bool same_node = receive.peer / change.ranks_per_node == rank / change.ranks_per_node;
        if (!same_node) between_nodes += receive.bytes;
      }
    }
    ASSERT_EQ(received, fewest.received);
    ASSERT_EQ(between_nodes, fewest.between_nodes);
    for (const TransferPlan& plan : plans) {
      ASSERT_EQ(plan.sent, sent) << "all ranks must know the same plan";
      ASSERT_EQ(plan.received, received);
      ASSERT_EQ(plan.moved, std::accumulate(received.begin(), received.end(), std::int64_t{0}));
    }
  }
}

double most_over_mean(const std::vector<std::int64_t>& bytes) {
  const auto sum =
      static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}));
  return static_cast<double>(*std::max_element(bytes.begin(), bytes.end())) *
         static_cast<double>(bytes.size()) / sum;
}

TEST(Transfer, SpreadsWhatIsSentOverThoseThatHoldIt) {
  struct Case {
    const char *from, *to;
    bool tied;
    std::int64_t vocab;
    std::vector<int> senders;
  };
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
  for (const Case& c : {
           Case{"pp=8", "dp=8", false, 23, all},
           Case{"pp=8", "dp=8", true, 23, all},
           Case{"pp=4,dp=2", "dp=8", false, 23, all},
           Case{"dp=4,pp=2", "tp=8", false, 23, all},
           // One tensor is most of the model.
           Case{"dp=4,pp=2", "dp=8", false, 5000, all},
           Case{"pp=2,tp=2,dp=2", "tp=2,dp=4", false, 5000, all},
           // Both end stages send the embedding; only the first has layers to send.
           Case{"tp=2,pp=4,split=4-2-2-0", "tp=2,dp=4", true, 400, {0, 1, 6, 7}},
       }) {
    LayoutChange change;
    change.model = small_llama(c.tied);
    change.model.layers = 8;
    change.model.vocab = c.vocab;
    change.from = plan_of(c.from);
    change.to = plan_of(c.to);
    for (const int ranks_per_node : {1, 8}) {
      change.ranks_per_node = ranks_per_node;
      const TransferPlan plan = plan_transfer(change, 0);
      std::vector<std::int64_t> sent;
      for (const int rank : c.senders) sent.push_back(plan.sent[at(rank)]);
      EXPECT_LT(most_over_mean(sent), 1.3) << describe(change);
    }
  }
}

TEST(Transfer, ALayoutThatDoesNotChangeMovesNothing) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 50; ++trial) {
    LayoutChange change = random_change(random);
    change.to = change.from;
    change.to.micro_batch = 4;
    change.to.recompute = Recompute::kFull;
    change.to.schedule = ScheduleKind::kGPipe;
    for (const TransferPlan& plan : plans_of_all(change)) {
      EXPECT_EQ(plan.moved, 0) << describe(change);
      EXPECT_TRUE(plan.sends.empty() && plan.receives.empty());
      EXPECT_FALSE(plan.kept.empty());
    }
  }
}

}  // namespace
}  // namespace copus
