// For tests: small models, and the place of each element of a tensor, computed one element at a
// time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "copus/train/state/placement.h"
#include "copus/train/state/random_plans.h"

namespace copus {

// For the random plans.
constexpr std::int64_t kSeqLen = 8, kGlobalBatch = 48;

// Tiny, with dimensions that divide by no more than they must: eight tp ranks share two key and
// value heads, and the last rank has padding rows in the vocabulary.
inline ModelSpec small_llama(bool tied = false) {
  ModelSpec m;
  m.name = "llama-test";
  m.layers = 6;
  m.hidden = 8;
  m.ffn = 16;
  m.heads = 8;
  m.kv_heads = 2;
  m.head_dim = 3;
  m.vocab = 23;
  m.max_positions = 5;
  m.tied_embeddings = tied;
  return m;
}

inline ModelSpec small_gpt2() {
  ModelSpec m = small_llama(/*tied=*/true);
  m.name = "gpt2-test";
  m.kv_heads = m.heads;
  m.gated_mlp = false;
  m.norm = Norm::kLayerNorm;
  m.positions = Positions::kLearned;
  m.qkv_bias = m.attention_out_bias = m.mlp_bias = true;
  return m;
}

inline ModelSpec small_qwen3() {
  ModelSpec m = small_llama();
  m.name = "qwen3-test";
  m.kv_heads = 4;
  m.qk_norm = m.qkv_bias = true;
  return m;
}

inline std::vector<ModelSpec> small_models() {
  return {small_llama(), small_llama(/*tied=*/true), small_gpt2(), small_qwen3()};
}

inline ParallelPlan plan_of(const char* text) {
  Result<PartialPlan> plan = parse_plan_text(text, "--plan");
  EXPECT_TRUE(plan.has_value()) << text;
  return plan->plan;
}

// The buckets of all chunks of a rank, in the order of its chunks.
inline std::vector<BucketPlacement> place_rank(const ModelSpec& model, const ParallelPlan& plan,
                                               std::int64_t rank, std::int64_t bucket_elements) {
  const Coordinates at = RankGrid(plan).coordinates_of(rank);
  std::vector<BucketPlacement> buckets;
  for (std::int64_t i = 0; i < plan.vp; ++i) {
    for (BucketPlacement& bucket : place_chunk(model, chunk_spec(model, plan, at.pp + i * plan.pp),
                                               plan, at, bucket_elements)) {
      buckets.push_back(std::move(bucket));
    }
  }
  return buckets;
}

constexpr std::int64_t kPadding = -1;

// The row-major index in the whole tensor of element `i` of the local part, or kPadding.
inline std::int64_t whole_element(const PlacedTensor& tensor, std::int64_t i) {
  const std::int64_t width = tensor.spec.shape.size() > 1 ? tensor.spec.shape[1] : 1;
  if (tensor.spec.cut == Cut::kColumns) {
    const std::int64_t row = i / tensor.shard.padded, column = i % tensor.shard.padded;
    return column < tensor.shard.length ? row * width + tensor.shard.begin + column : kPadding;
  }
  const std::int64_t row = i / width, column = i % width;
  return row < tensor.shard.length ? (tensor.shard.begin + row) * width + column : kPadding;
}

}  // namespace copus
