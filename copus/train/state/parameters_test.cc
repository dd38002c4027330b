#include "copus/train/state/parameters.h"

#include <gtest/gtest.h>

#include <cmath>

#include "copus/spec/hf_config.h"

namespace copus {
namespace {

ModelSpec model_of(const char* name) {
  Result<ModelSpec> model = load_model(name);
  EXPECT_TRUE(model.has_value());
  return std::move(model).value();
}

class Catalog : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Catalog,
                         ::testing::Values("tiny", "gpt2-124m", "gpt2-xl", "llama-2-7b",
                                           "llama-3-8b", "llama-3.2-1b", "llama-3.1-405b",
                                           "qwen-2.5-7b", "mistral-7b"));

TEST_P(Catalog, ParametersOfAllChunksAddUpToTheModels) {
  const ModelSpec model = model_of(GetParam());
  for (const std::int64_t pp : {1, 2}) {
    ParallelPlan plan;
    plan.pp = pp;
    plan.stage_layers = {model.layers - (pp - 1) * 2};
    if (pp == 2) plan.stage_layers.push_back(2);
    std::int64_t total = 0;
    for (std::int64_t chunk = 0; chunk < pp; ++chunk) {
      for (const ParameterSpec& parameter :
           chunk_parameters(model, chunk_spec(model, plan, chunk))) {
        for (const TensorSpec& tensor : parameter.tensors) total += element_count(tensor.shape);
      }
    }
    // The last stage holds a copy of a tied embedding.
    const std::int64_t copy = pp > 1 && model.tied_embeddings ? model.vocab * model.hidden : 0;
    EXPECT_EQ(total - copy, model.total_params());
  }
}

TEST(Shards, TileEveryTensorAtEveryWidth) {
  ModelSpec model = model_of("tiny");
  model.vocab = 251;
  model.heads = 8;
  model.kv_heads = 2;
  for (const std::int64_t tp : {1, 2, 4, 8}) {
    for (const ParameterSpec& parameter : chunk_parameters(model, chunk_spec(model, {}, 0))) {
      for (const TensorSpec& tensor : parameter.tensors) {
        const std::int64_t size = tensor.shape[tensor.cut == Cut::kColumns ? 1 : 0];
        std::vector<int> held(static_cast<std::size_t>(size), 0), counted(held);
        std::int64_t padded = -1;
        for (std::int64_t rank = 0; rank < tp; ++rank) {
          const Shard shard = shard_of(tensor, tp, rank);
          for (std::int64_t i = shard.begin; i < shard.begin + shard.length; ++i) {
            ++held[static_cast<std::size_t>(i)];
            if (shard.copy == 0) ++counted[static_cast<std::size_t>(i)];
          }
          if (padded < 0) padded = shard.padded;
          EXPECT_EQ(shard.padded, padded) << "ranks must lie alike: " << tensor.name;
        }
        for (const int n : counted) EXPECT_EQ(n, 1) << tensor.name << " tp " << tp;
        const int copies = static_cast<int>(shard_of(tensor, tp, 0).copies);
        for (const int n : held) EXPECT_EQ(n, copies) << tensor.name << " tp " << tp;
      }
    }
  }
}

TEST(InitialValues, DependOnSeedNameAndElementAlone) {
  TensorSpec tensor;
  tensor.name = "layers.3.mlp.up.weight";
  tensor.shape = {50, 40};
  tensor.init_std = 0.02;
  std::vector<float> whole(2000), part(700), other(2000);
  initial_values(tensor, 5, 0, 2000, whole.data());
  initial_values(tensor, 5, 333, 700, part.data());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 333));
  initial_values(tensor, 6, 0, 2000, other.data());
  EXPECT_NE(whole, other);
  tensor.name = "layers.4.mlp.up.weight";
  initial_values(tensor, 5, 0, 2000, other.data());
  EXPECT_NE(whole, other);
}

TEST(InitialValues, AreNormalWithTheStatedDeviation) {
  TensorSpec tensor;
  tensor.name = "x";
  tensor.shape = {1000, 1000};
  tensor.init_std = 0.02;
  std::vector<float> x(1'000'000);
  initial_values(tensor, 1, 0, 1'000'000, x.data());
  double sum = 0, square = 0, fourth = 0, lag = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double z = x[i] / 0.02;
    sum += z;
    square += z * z;
    fourth += z * z * z * z;
    if (i > 0) lag += z * x[i - 1] / 0.02;
  }
  // Five standard errors of a million draws: 1, sqrt(2), sqrt(96) and 1, each over 1000.
  EXPECT_NEAR(sum / 1e6, 0, 0.005);
  EXPECT_NEAR(square / 1e6, 1, 0.0071);
  EXPECT_NEAR(fourth / 1e6, 3, 0.049);
  EXPECT_NEAR(lag / 1e6, 0, 0.005);
}

}  // namespace
}  // namespace copus
