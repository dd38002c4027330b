#include "copus/train/state/placement.h"

#include <gtest/gtest.h>

#include <map>

#include "copus/train/state/test_layouts.h"

namespace copus {
namespace {

// How many ranks have each element of each tensor.
using Counts = std::map<std::string, std::vector<int>>;

Counts no_counts(const ModelSpec& model) {
  Counts counts;
  for (const TensorSpec& tensor : model_tensors(model)) {
    counts[tensor.name].resize(static_cast<std::size_t>(element_count(tensor.shape)));
  }
  return counts;
}

TEST(Placement, EveryElementHasTheCopiesThatThePlanSays) {
  std::mt19937 random(1);
  for (const ModelSpec& model : small_models()) {
    for (int trial = 0; trial < 20; ++trial) {
      const ParallelPlan plan = random_plan(random, model, 8, kSeqLen, kGlobalBatch);
      SCOPED_TRACE(model.name + " " + short_name(plan));
      Counts held = no_counts(model), owned = held;
      for (std::int64_t rank = 0; rank < 8; ++rank) {
        for (const BucketPlacement& bucket : place_rank(model, plan, rank, 300)) {
          for (const PlacedTensor& tensor : bucket.tensors) {
            for (std::int64_t i = 0; i < tensor.size; ++i) {
              const std::int64_t element = whole_element(tensor, i);
              if (element == kPadding) continue;
              ++held.at(tensor.spec.name)[static_cast<std::size_t>(element)];
              const std::int64_t at = tensor.offset + i - bucket.owned_begin;
              if (at >= 0 && at < bucket.owned_length) {
                ++owned.at(tensor.spec.name)[static_cast<std::size_t>(element)];
              }
            }
          }
        }
      }
      for (const TensorSpec& tensor : model_tensors(model)) {
        const bool both_ends =
            model.tied_embeddings && plan.pp > 1 && tensor.name == "embed.tokens.weight";
        const std::int64_t replicas = shard_of(tensor, plan.tp, 0).copies * (both_ends ? 2 : 1);
        const std::vector<int> expected_held(held.at(tensor.name).size(),
                                             static_cast<int>(replicas * plan.dp));
        const std::vector<int> expected_owned(
            held.at(tensor.name).size(),
            static_cast<int>(plan.zero >= 1 ? replicas : replicas * plan.dp));
        EXPECT_EQ(held.at(tensor.name), expected_held) << tensor.name;
        EXPECT_EQ(owned.at(tensor.name), expected_owned) << tensor.name;
      }
    }
  }
}

TEST(Placement, OwnedPartsOfADataParallelGroupTileTheBucket) {
  const ModelSpec model = small_llama();
  for (const std::int64_t dp : {1, 3, 8}) {
    for (const int zero : {0, 1}) {
      ParallelPlan plan;
      plan.dp = dp;
      plan.zero = zero;
      std::vector<std::int64_t> next(place_rank(model, plan, 0, 300).size(), 0);
      for (std::int64_t rank = 0; rank < dp; ++rank) {
        const std::vector<BucketPlacement> buckets = place_rank(model, plan, rank, 300);
        for (std::size_t i = 0; i < buckets.size(); ++i) {
          EXPECT_EQ(buckets[i].padded % dp, 0);
          EXPECT_LT(buckets[i].padded - buckets[i].size, dp);
          if (zero == 0) {
            EXPECT_EQ(buckets[i].owned_begin, 0);
            EXPECT_EQ(buckets[i].owned_length, buckets[i].padded);
            continue;
          }
          EXPECT_EQ(buckets[i].owned_begin, next[i]);
          next[i] += buckets[i].owned_length;
          if (rank + 1 == dp) {
            EXPECT_EQ(next[i], buckets[i].padded);
          }
        }
      }
    }
  }
}

// The backward pass finishes the last parameters first.
TEST(Placement, ParametersLieInReverseApartByDecayAndTheSharedEmbeddingAloneAtTheEnd) {
  constexpr std::int64_t kBucketElements = 300;
  for (const char* text : {"tp=2,pp=2,dp=2", "tp=2,dp=4"}) {
    const ModelSpec model = small_gpt2();
    const ParallelPlan plan = plan_of(text);
    const std::vector<ParameterSpec> specs = chunk_parameters(model, chunk_spec(model, plan, 0));
    const std::vector<BucketPlacement> buckets = place_rank(model, plan, 0, kBucketElements);
    std::vector<std::size_t> seen(specs.size());
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const BucketPlacement& bucket = buckets[b];
      EXPECT_EQ(bucket.tied, plan.pp > 1 && b + 1 == buckets.size());
      if (bucket.tied) {
        EXPECT_EQ(specs[bucket.parameters.at(0).index].name, "embed.tokens");
      }
      // A full bucket takes no further parameter.
      EXPECT_TRUE(bucket.parameters.size() == 1 ||
                  bucket.parameters.back().offset < kBucketElements);
      std::size_t tensor = 0;
      std::int64_t offset = 0;
      for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
        const PlacedParameter& parameter = bucket.parameters[i];
        ++seen[parameter.index];
        if (i > 0) {
          EXPECT_LT(parameter.index, bucket.parameters[i - 1].index);
        }
        EXPECT_EQ(specs[parameter.index].decay, bucket.decay);
        EXPECT_EQ(parameter.offset, offset);
        for (const TensorSpec& spec : specs[parameter.index].tensors) {
          EXPECT_EQ(bucket.tensors.at(tensor).spec.name, spec.name);
          EXPECT_EQ(bucket.tensors[tensor].offset, offset);
          offset += bucket.tensors[tensor++].size;
        }
      }
      EXPECT_EQ(tensor, bucket.tensors.size());
      EXPECT_EQ(offset, bucket.size);
    }
    EXPECT_EQ(seen, std::vector<std::size_t>(specs.size(), 1));
  }
}

}  // namespace
}  // namespace copus
