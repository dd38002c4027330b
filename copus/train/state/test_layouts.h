// For tests: small models, random valid plans, and which element of the whole tensor lies where,
// worked out one element at a time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "copus/train/state/placement.h"

namespace copus {

// Tiny, and no dimension a multiple of more than it must be: eight tp ranks share two key and value
// heads, and the last of them holds rows of padding in the vocabulary.
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

// Any number of layers at the ends, at least one in between.
inline std::vector<std::int64_t> random_split(std::int64_t layers, std::int64_t chunks,
                                              std::mt19937& random) {
  std::vector<std::int64_t> split(static_cast<std::size_t>(chunks), 1);
  split.front() = split.back() = 0;
  for (std::int64_t left = layers - std::max<std::int64_t>(0, chunks - 2); left > 0; --left) {
    ++split[random() % split.size()];
  }
  return split;
}

// A plan of `world` ranks that the model can be trained with.
inline ParallelPlan random_plan(const ModelSpec& model, std::int64_t world, std::mt19937& random) {
  constexpr std::int64_t kSeqLen = 8, kGlobalBatch = 48;
  ClusterSpec cluster;
  cluster.nodes = 1;
  cluster.gpus_per_node = world;
  const auto one_of = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
  };
  while (true) {
    ParallelPlan plan;
    plan.tp = 1 + one_of(world);
    plan.pp = 1 + one_of(world);
    if (world % (plan.tp * plan.pp) != 0) continue;
    plan.dp = world / (plan.tp * plan.pp);
    plan.vp = plan.pp > 1 ? 1 + one_of(3) : 1;
    plan.zero = static_cast<int>(one_of(2));
    plan.sp = plan.tp > 1 && one_of(2) == 1;
    if (plan.vp > 1) plan.schedule = ScheduleKind::kInterleaved;
    const std::int64_t chunks = plan.pp * plan.vp;
    if (chunks > model.layers + 2) continue;
    if (chunks > 1 && one_of(2) == 1)
      plan.stage_layers = random_split(model.layers, chunks, random);
    if (plan.validate(model, cluster, kSeqLen, kGlobalBatch).has_value()) return plan;
  }
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

// Which element of the whole tensor, row by row, element `i` of the local part is.
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
